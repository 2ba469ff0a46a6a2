"""What a tape holds, as far as it is kept in memory: where its exchanges stand, and how they are found."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from vfx.clients.tapes.lines import read_answer, read_delta, unpacked
from vfx.clients.tapes.matching import MASKS
from vfx.errors import ConfigError, Mistake

__all__ = ["VERSION", "Contents", "Entry", "file_state", "read_contents"]

VERSION = 1
"""Of the format; a tape of a later one is refused."""
_FIRST_BYTES = b'{"vfx_tape":'


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an exchange stands on the tape, and how it is found."""

    number: int
    offset: int
    length: int
    at: float
    keys: tuple[str, ...]
    method: str
    path: str
    query: str
    endpoint: str
    """Where the answer came from."""
    masks: int
    """Which rules its keys were made by."""


@dataclass(slots=True)
class Contents:
    """What a file holds."""

    id: str = ""
    """Tells the tape from others, wherever its file is moved; empty before anything was recorded."""
    endpoint: str = ""
    """Where the last answers came from."""
    masks: int = MASKS
    entries: list[Entry] = field(default_factory=list[Entry])
    discarded: set[int] = field(default_factory=set[int])
    """Numbers of those that are not to be replayed."""
    length: int = 0
    """Bytes of all whole lines."""
    state: tuple[int, ...] = ()
    """Of the file when it was read; another one when it has changed."""
    _numbers: set[int] = field(default_factory=set[int])

    def take(self, line: bytes) -> None:
        """Take the next line.

        Raises:
            ValueError: It is none of a tape (also KeyError, TypeError, AttributeError).
        """
        fields: dict[str, Any] = json.loads(line)
        if "discarded" in fields:
            self.discarded.update(map(int, fields["discarded"]))
        elif "vfx_tape" in fields:
            self.id, self.endpoint, self.masks = str(fields["id"]), str(fields["endpoint"]), int(fields["masks"])
        else:
            self.entries.append(self._entry(fields, len(line)))
        self.length += len(line)

    def _entry(self, fields: Mapping[str, Any], length: int) -> Entry:
        first, second, third = map(str, fields["keys"])
        number, request = int(fields["n"]), fields["request"]
        if number in self._numbers:
            raise ValueError(f"there is an exchange {number} before it")
        if isinstance(request, dict) and "like" in request:
            like, _ = read_delta(cast("Mapping[str, Any]", request))
            if like not in self._numbers:
                raise ValueError(f"it refers to exchange {like}, which is not before it")
        else:
            unpacked(request)
        read_answer(fields)
        self._numbers.add(number)
        return Entry(
            number=number,
            offset=self.length,
            length=length,
            at=float(fields["at"]),
            keys=(first, second, third),
            method=str(fields.get("method", "POST")),
            path=str(fields["path"]),
            query=str(fields.get("query", "")),
            endpoint=self.endpoint,
            masks=self.masks,
        )


def read_contents(path: Path) -> Contents:
    """What a tape holds. A torn last line is passed over.

    Raises:
        ConfigError: It is no tape, of a later format, or a line of it can't be read.
        OSError: It can't be read.
    """
    contents = Contents()
    with path.open("rb") as file:
        contents.state = file_state(file.fileno())
        for number, line in enumerate(file, start=1):
            if number == 1:
                _check_first(path, line)
            if not line.endswith(b"\n"):
                break
            try:
                contents.take(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                why = f"line {number} is no exchange: {type(error).__name__}: {error}"
                hint = "put the file back from a copy, or remove it and record anew"
                raise ConfigError(Mistake(why, f"tape {path}", hint)) from error
    return contents


def _check_first(path: Path, line: bytes) -> None:
    start = line[: len(_FIRST_BYTES)]
    if start != _FIRST_BYTES[: len(line)]:
        raise ConfigError(Mistake("it is no tape of vfx", f"file {path}", "name another file with --client.cassette"))
    if not line.endswith(b"\n"):
        return
    try:
        version = json.loads(line)["vfx_tape"]
    except ValueError:
        return  # Told as any other line that can't be read.
    if not isinstance(version, int) or version > VERSION:
        what = f"it is of format {version!r}, this vfx reads up to {VERSION}"
        raise ConfigError(Mistake(what, f"tape {path}", "use the vfx that wrote it, or a later one"))


def file_state(descriptor: int) -> tuple[int, ...]:
    """Of an open file; another one when it has changed."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
