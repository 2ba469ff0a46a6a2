"""A JSON object as bytes and as values, so that single values are exchanged and every other byte stays as it came.

Large texts are parsed piece by piece: one call of the C parser holds the interpreter's lock for as long as it takes,
and with it every other rollout of the process.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from vfx._concurrency import LARGE_BODY, off_the_loop
from vfx.interception.pieces import AT_ONCE, join
from vfx.interception.prompts import Beginning, PromptMemory

__all__ = ["LARGE_BODY", "Document", "Listing", "off_the_loop", "parse", "serialise"]

PIECEWISE_FROM = 1 << 20
# Deep enough for a picture within a part of a tool's result within a message.
PIECEWISE_DEPTH = 6

_SPACES = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class Listing:
    """The list of a request whose items are read one by one, as far as they are not known already."""

    name: str
    memory: PromptMemory
    text: str = ""
    start: int = 0
    """Where the list begins in `text`."""
    known: Beginning | None = None
    """What it begins with; None = nothing that was there before."""
    items: list[tuple[int, Any]] | None = None
    """Where each further item ends, and its value; None = there is no such list."""


class Document:
    """A JSON object and the text it came from."""

    def __init__(self, raw: bytes, listing: Listing | None = None) -> None:
        """Parse `raw`.

        Args:
            raw: The text.
            listing: Gets the items of a list. If some of these are known, the list is not in `body`.

        Raises:
            ValueError: It is not a JSON object in UTF-8.
        """
        self._raw = raw
        text = raw.decode("utf-8")
        self._text: str | None = None if len(text) == len(raw) else text
        """None when each character is one byte, so that positions in the text are those in `raw`."""
        self._spans: dict[str, list[tuple[int, int]]] = {}
        """Where the values of each name stand: a name may occur twice, and who reads it takes which he likes."""
        self.body: dict[str, Any] = {}
        """The values by name, the last one of each."""
        self._end = self._read(text, listing)
        """Where the closing brace stands."""

    def _read(self, text: str, listing: Listing | None) -> int:
        reader = _Reader(text, listing)
        try:
            position = reader.skip(0)
            if text[position : position + 1] != "{":
                value, _ = reader.value(position, 0)
                raise _no_object(value)
            depth = PIECEWISE_DEPTH if len(text) > PIECEWISE_FROM else 1
            position, end = reader.object(position, depth, self.body, self._spans), len(text)
        except RecursionError as error:
            raise _too_deep() from error
        if reader.skip(position) != end:
            reader.fail("Extra data", reader.skip(position))
        return position - 1

    def replaced(self, body: Mapping[str, Any]) -> bytes:
        """The object with the values of `body` instead of its own; what is equal in both stays as it was written.

        Args:
            body: Made from `self.body` by exchanging, adding or removing values of the outermost level. A value is
                taken as unchanged when it is the same object.
        """
        if any(name not in body for name in self.body):
            return serialise(body)
        edits: list[tuple[int, int, str]] = []
        added: list[str] = []
        for name, value in body.items():
            if name not in self.body:
                added.append(f"{_dumps(name)}:{_dumps(value)}")
            elif not _is_same(value, self.body[name]):
                edits += [(start, end, _dumps(value)) for start, end in self._spans[name]]
        if added:
            edits.append((self._end, self._end, ("," if self.body else "") + ",".join(added)))
        return join(self._spliced(sorted(edits))) if edits else self._raw

    def _spliced(self, edits: Iterable[tuple[int, int, str]]) -> Iterator[bytes | memoryview]:
        position = 0
        for start, end, new in edits:
            yield from self._slices(position, start)
            yield new.encode("ascii")
            position = end
        yield from self._slices(position, len(self._raw if self._text is None else self._text))

    def _slices(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        if self._text is None:
            yield memoryview(self._raw)[start:end]
        else:
            for position in range(start, end, AT_ONCE):
                yield self._text[position : min(position + AT_ONCE, end)].encode("utf-8")


class _Reader:
    """Parses JSON text, its outer levels in Python and what stands below them in C."""

    def __init__(self, text: str, listing: Listing | None) -> None:
        self._text = text
        self._listing = listing

    def skip(self, position: int) -> int:
        # Asked first, since there mostly is none.
        if self._text[position : position + 1] not in _SPACES:
            return position
        match = _SPACE.match(self._text, position)
        return position if match is None else match.end()

    def fail(self, message: str, position: int) -> NoReturn:
        raise json.JSONDecodeError(message, self._text, position)

    def value(self, position: int, depth: int) -> tuple[Any, int]:
        """The value at `position` and where it ends; `depth` levels of it are read in Python."""
        first = self._text[position : position + 1] if depth > 0 else ""
        if first == "{":
            fields: dict[str, Any] = {}
            return fields, self.object(position, depth, fields)
        if first == "[":
            return self._array(position, depth)
        return _DECODER.raw_decode(self._text, position)

    def object(
        self,
        position: int,
        depth: int,
        fields: dict[str, Any],
        spans: dict[str, list[tuple[int, int]]] | None = None,
    ) -> int:
        """Put the fields of the object at `position` into `fields`, and where their values stand into `spans`."""
        text = self._text
        position = self.skip(position + 1)
        if text[position : position + 1] == "}":
            return position + 1
        while True:
            if text[position : position + 1] != '"':
                self.fail("Expecting property name enclosed in double quotes", position)
            name, position = _DECODER.raw_decode(text, position)
            position = self.skip(position)
            if text[position : position + 1] != ":":
                self.fail("Expecting ':' delimiter", position)
            start = self.skip(position + 1)
            listing = self._listing
            if spans is not None and listing is not None and name == listing.name and text[start : start + 1] == "[":
                end = self._list(listing, start, depth - 1, fields)
            else:
                fields[name], end = self.value(start, depth - 1)
            if spans is not None:
                spans.setdefault(name, []).append((start, end))
            position = self._next(end, "}")
            if text[position - 1] == "}":
                return position
            position = self.skip(position)

    def _list(self, listing: Listing, start: int, depth: int, fields: dict[str, Any]) -> int:
        """Read the listed items from the first that is not known, and return where the list ends."""
        text, items = self._text, list[tuple[int, Any]]()
        known = listing.memory.find(text, start)
        position = self.skip(start + 1)
        is_at_end = text[position : position + 1] == "]"
        if known is not None:
            position = self._next(start + known.length, "]")
            is_at_end = text[position - 1] == "]"
            position = position - 1 if is_at_end else self.skip(position)
        while not is_at_end:
            item, end = self.value(position, depth - 1)
            items.append((end, item))
            position = self._next(end, "]")
            is_at_end = text[position - 1] == "]"
            position = position - 1 if is_at_end else self.skip(position)
        listing.text, listing.start, listing.known, listing.items = text, start, known, items
        if known is None:
            fields[listing.name] = [item for _, item in items]
        else:
            fields.pop(listing.name, None)
        return position + 1

    def _array(self, position: int, depth: int) -> tuple[list[Any], int]:
        text = self._text
        items: list[Any] = []
        position = self.skip(position + 1)
        if text[position : position + 1] == "]":
            return items, position + 1
        while True:
            item, end = self.value(position, depth - 1)
            items.append(item)
            position = self._next(end, "]")
            if text[position - 1] == "]":
                return items, position
            position = self.skip(position)

    def _next(self, position: int, closing: str) -> int:
        """Where it goes on after the comma or the closing bracket behind a value."""
        position = self.skip(position)
        if self._text[position : position + 1] not in (",", closing) or position >= len(self._text):
            self.fail("Expecting ',' delimiter", position)
        return position + 1


def parse(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`.

    Raises:
        ValueError: It is none.
    """
    if len(raw) > PIECEWISE_FROM:
        return Document(raw).body
    try:
        value = json.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise _too_deep() from error
    if not isinstance(value, dict):
        raise _no_object(value)
    return cast("dict[str, Any]", value)


def _too_deep() -> ValueError:
    return ValueError("it is nested too deeply")


def _no_object(value: Any) -> ValueError:
    return ValueError(f"expected a JSON object, got {type(value).__name__}")


def serialise(value: Any) -> bytes:
    """JSON in ASCII, since escapes also carry lone surrogates."""
    return _dumps(value).encode("ascii")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _is_same(value: Any, other: Any) -> bool:
    # 1, 1.0 and true are equal to Python, but not to a provider.
    return value is other or (isinstance(value, str) and value == other)
