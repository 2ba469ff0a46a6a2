"""An answer told anew with other names: a folder or an id of the rollout that was recorded becomes this one's. Pure.

A stream of a model's cuts such a name into pieces, one a token, so the pieces of each text are looked at together.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

from vfx.clients.tapes.lines import Answer
from vfx.clients.tapes.names import Names

__all__ = ["translated"]

# What tells apart the texts that a stream writes side by side.
_PLACES = ("type", "index", "output_index", "content_index", "summary_index", "item_id")
_EVENT = re.compile(rb".*?(?:\r?\n\r?\n|\Z)", re.DOTALL)


def translated(answer: Answer, names: Mapping[str, str]) -> Answer:
    """`answer` with other names in its texts.

    Args:
        answer: What was recorded.
        names: What takes the place of each name.

    Returns:
        `answer` itself when it holds none of the names; a stream that does comes event by event.
    """
    told_as = Names(names)
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        return answer
    if answer.chunks is None:
        told = told_as.tell(text)
        return answer if told == text else replace(answer, body=told.encode())
    events = [_Event(found[0]) for found in _EVENT.finditer(answer.body) if found[0]]
    texts: dict[tuple[Any, ...], list[_Piece]] = {}
    for event in events:
        for place, piece in event.pieces():
            texts.setdefault(place, []).append(piece)
    for pieces in texts.values():
        _tell(pieces, told_as)
    if not any(event.is_changed for event in events):
        return answer
    written = [event.encoded() for event in events]
    return replace(answer, body=b"".join(written), chunks=[*map(len, written)])


class _Event:
    """One event of a stream, as its bytes and as its value."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._lines = raw.split(b"\n")
        self._data = [n for n, line in enumerate(self._lines) if line.startswith(b"data:")]
        self.fields: dict[str, Any] = {}
        self.is_changed = False
        if len(self._data) == 1:
            try:
                value = json.loads(self._lines[self._data[0]].removeprefix(b"data:"))
            except (ValueError, RecursionError):
                value = None
            self.fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    def pieces(self) -> Iterator[tuple[tuple[Any, ...], "_Piece"]]:
        """Each text in it with its place, which is the same for all pieces of one text."""
        yield from self._pieces(self.fields, ())

    def _pieces(self, value: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], "_Piece"]]:
        if isinstance(value, list):
            for number, item in enumerate(cast("list[Any]", value)):
                yield from self._pieces(item, (*place, None if isinstance(item, dict) else number))
        elif isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            inside = (*place, *(fields.get(name) for name in _PLACES if not isinstance(fields.get(name), dict | list)))
            for name, inner in fields.items():
                if isinstance(inner, str):
                    yield (*inside, name), _Piece(self, fields, name)
                else:
                    yield from self._pieces(inner, (*inside, name))

    def encoded(self) -> bytes:
        """Its bytes, the same as they were unless it was changed."""
        if not self.is_changed:
            return self._raw
        try:
            data = json.dumps(self.fields, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # Half a character, the other half of which comes with the next event.
            data = json.dumps(self.fields, separators=(",", ":")).encode()
        ending = b"\r" if self._lines[self._data[0]].endswith(b"\r") else b""
        lines = list(self._lines)
        lines[self._data[0]] = b"data: " + data + ending
        return b"\n".join(lines)


class _Piece:
    """A text within an event, which may be only a part of a longer one."""

    def __init__(self, event: _Event, holder: dict[str, Any], name: str) -> None:
        self._event, self._holder, self._name = event, holder, name

    @property
    def text(self) -> str:
        return self._holder[self._name]

    @text.setter
    def text(self, text: str) -> None:
        self._holder[self._name] = text
        self._event.is_changed = True


def _tell(pieces: Sequence[_Piece], names: Names) -> None:
    """Put the new names into the pieces of one text: each into the piece in which the old one begins."""
    whole = "".join(piece.text for piece in pieces)
    found = list(names.find(whole))
    if not found:
        return
    ends = list(accumulate(len(piece.text) for piece in pieces))
    for piece, end in zip(pieces, ends, strict=True):
        start = end - len(piece.text)
        told, position = "", start
        for begin, stop, new in found:
            if stop <= start or begin >= end:
                continue
            told += whole[position : max(position, begin)]
            if begin >= start:
                told += new
            position = min(end, stop)
        told += whole[position:end]
        if told != piece.text:
            piece.text = told
