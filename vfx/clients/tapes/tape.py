"""The file of a cassette: lines of JSON, each written whole or not at all.

The first says the format and where answers come from, and so does each from which on that is another place; all others
are exchanges. A request is kept as what it does not share with an earlier one.
"""

import errno
import fcntl
import json
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from vfx.clients.tapes.contents import VERSION, Contents, Entry, file_state, read_contents
from vfx.clients.tapes.deltas import Beginnings, Delta, delta
from vfx.clients.tapes.lines import Answer, Recording, packed, read_answer, read_delta, recording_fields, unpacked
from vfx.clients.tapes.matching import MASKS
from vfx.errors import ConfigError, Mistake

__all__ = ["Tape", "TapeError"]

MAX_KNOWN_CHARS = 32_000_000
"""Requests that are kept in memory, since the next ones are likely to go on from them."""
WORTH_IT = 0.75
"""A request is kept as a difference when no more than this share of it differs."""


class TapeError(Exception):
    """The tape can't be read or written any more; says where and why."""


class Tape:
    """One open tape. May be used from several threads; whoever opens it closes it."""

    def __init__(self, path: Path, descriptor: int, contents: Contents) -> None:
        self.path = path
        self.entries: Sequence[Entry] = [each for each in contents.entries if each.number not in contents.discarded]
        """What was on it when it was opened, in the order of recording."""
        self._descriptor = descriptor
        self.contents = contents
        """What was read of it, its entries as they were then."""
        self._lock = threading.Lock()
        self._by_number = {entry.number: entry for entry in contents.entries}
        self._beginnings = Beginnings()
        self._known: OrderedDict[int, str] = OrderedDict()
        self._known_chars = 0
        self._next = max(self._by_number, default=0) + 1
        self._header = b""
        """What has to be written before the next exchange."""

    @classmethod
    def open(cls, path: Path, *, is_writing: bool, contents: Contents | None = None) -> "Tape":
        """Open a tape, for one who adds to it or for many who only read. May block: it reads the whole file.

        Args:
            path: The file. One that is written to is made, with its folder, if it is not there.
            is_writing: Whether exchanges are added.
            contents: What an earlier look has found, which need not be read again if it still holds; None = nothing.

        Raises:
            ConfigError: It can't be read, is no tape, or somebody else records on it.
        """
        try:
            if is_writing:
                path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if is_writing else os.O_RDONLY
            # Nobody may ever write to a pipe that is opened for reading.
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
            try:
                _check_kind(path, descriptor)
                _lock(path, descriptor, is_exclusive=is_writing)
                if contents is None or contents.state != file_state(descriptor):
                    contents = read_contents(path)
                if is_writing and os.fstat(descriptor).st_size > contents.length:
                    # A torn last line: what it would have held is asked for again.
                    os.ftruncate(descriptor, contents.length)
                return cls(path, descriptor, contents)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise ConfigError(Mistake(f"it can't be used: {error.strerror or error}", f"tape {path}")) from error

    @staticmethod
    def look(path: Path) -> Contents:
        """What a tape holds that nobody records on. May block.

        Raises:
            ConfigError: It can't be read, is no tape, or somebody else records on it.
            FileNotFoundError: It is not there.
        """
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        tape = Tape.open(path, is_writing=False)
        tape.close()
        return tape.contents

    def close(self) -> None:
        """Close the file, which frees it for others."""
        if self._header and not self.contents.length:
            # Made for this launch, which has recorded nothing.
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    @property
    def id(self) -> str:
        """See `Contents.id`."""
        return self.contents.id

    def take_number(self) -> int:
        """A number for the next exchange; one that is not recorded leaves a gap."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def begin(self, endpoint: str) -> None:
        """Whatever is recorded from now on comes from `endpoint`."""
        contents = self.contents
        if contents.id and (contents.endpoint, contents.masks) == (endpoint, MASKS):
            return
        contents.id, contents.endpoint, contents.masks = contents.id or os.urandom(4).hex(), endpoint, MASKS
        header = {"vfx_tape": VERSION, "id": contents.id, "endpoint": endpoint, "masks": MASKS}
        # Written with the first exchange: a launch that records nothing leaves the file as it is.
        self._header = _encoded(header)

    def add(self, recording: Recording) -> None:
        """Keep an exchange; once this returns, it is there whatever happens to this process.

        Raises:
            TapeError: The file can't be written; it holds what it held before.
        """
        with self._lock:
            text = _text(recording.request)
            request = packed(recording.request) if text is None else self._shortened(recording.path, text)
            offset, length = self._append(recording_fields(recording, request))
            self._by_number[recording.number] = Entry(
                number=recording.number,
                offset=offset,
                length=length,
                at=recording.at,
                keys=recording.keys,
                method=recording.method,
                path=recording.path,
                query=recording.query,
                endpoint=self.contents.endpoint,
                masks=MASKS,
            )
            if text is not None:
                self._learn(recording.number, recording.path, text)

    def discard(self, numbers: Collection[int]) -> None:
        """From the next launch on, exchanges of this one are as if they were not there.

        Raises:
            TapeError: The file can't be written.
        """
        with self._lock:
            if known := sorted(self._by_number.keys() & numbers):
                self._append({"discarded": known})

    def learn(self, entry: Entry) -> None:
        """An exchange was replayed: what is recorded next may well go on from it.

        Raises:
            TapeError: The file was changed meanwhile.
        """
        with self._lock:
            if isinstance(request := self._request(entry), str):
                self._learn(entry.number, entry.path, request)

    def _learn(self, number: int, path: str, text: str) -> None:
        self._beginnings.add(number, path, text)
        self._remember(number, text)

    def _remember(self, number: int, text: str) -> None:
        if number not in self._known:
            self._known_chars += len(text)
        self._known[number] = text
        self._known.move_to_end(number)
        while self._known_chars > MAX_KNOWN_CHARS and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._known_chars -= len(oldest)

    def _shortened(self, path: str, text: str) -> str | Mapping[str, Any]:
        nearest = self._beginnings.nearest(path, text)
        if nearest is None or not isinstance(base := self._request(self._by_number[nearest]), str):
            return text
        difference = delta(base, text)
        if len(difference.middle) > len(text) * WORTH_IT:
            return text
        return {"like": nearest, "start": difference.start, "end": difference.end, "middle": difference.middle}

    def _append(self, fields: Mapping[str, Any]) -> tuple[int, int]:
        """Write one line; returns where it stands and its length."""
        line = _encoded(fields)
        written = self._header + line
        try:
            start = os.fstat(self._descriptor).st_size
            is_whole, reason = os.write(self._descriptor, written) == len(written), os.strerror(errno.ENOSPC)
            if not is_whole:
                os.ftruncate(self._descriptor, start)
        except OSError as error:
            start, is_whole, reason = 0, False, error.strerror or str(error)
        if not is_whole:
            raise TapeError(f"{self.path}: an exchange can't be recorded: {reason}")
        offset = start + len(self._header)
        self._header = b""
        return offset, len(line)

    def request(self, entry: Entry) -> bytes:
        """What was asked, but for secrets.

        Raises:
            TapeError: The file was changed meanwhile.
        """
        with self._lock:
            request = self._request(entry)
        return request.encode() if isinstance(request, str) else request

    def _request(self, entry: Entry) -> str | bytes:
        """The request of an exchange, put together from those that it refers to."""
        pending: list[Delta] = []
        number = entry.number
        while (known := self._known.get(number)) is None:
            given = self._line(self._by_number[number])["request"]
            if isinstance(given, str):
                known = given
                break
            if "like" not in given:
                return unpacked(given)
            number, difference = read_delta(given)
            pending.append(difference)
        try:
            for difference in reversed(pending):
                known = difference.apply(known)
        except ValueError as error:
            raise TapeError(f"{self.path}: the request of exchange {entry.number} can't be read: {error}") from error
        self._remember(entry.number, known)
        return known

    def answer(self, entry: Entry) -> Answer:
        """What was answered.

        Raises:
            TapeError: The file was changed meanwhile.
        """
        return read_answer(self._line(entry))

    def _line(self, entry: Entry) -> dict[str, Any]:
        try:
            line = json.loads(os.pread(self._descriptor, entry.length, entry.offset))
            if line["n"] == entry.number:
                return line
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TapeError(f"{self.path}: it was changed while it was in use: {error}") from error
        raise TapeError(f"{self.path}: it was changed while it was in use")


def _text(request: bytes) -> str | None:
    """A request; None when it is no text."""
    try:
        return request.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _encoded(fields: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        # A header that was no proper text.
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _check_kind(path: Path, descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        what = "it can't be used: it is no regular file"
        raise ConfigError(Mistake(what, f"tape {path}", "name another one"))


def _lock(path: Path, descriptor: int, *, is_exclusive: bool) -> None:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        what = "somebody else uses it" if is_exclusive else "somebody else records on it"
        hint = "wait until they have ended, or name another tape; two clients of a run can't share one"
        raise ConfigError(Mistake(what, f"tape {path}", hint)) from error
