"""Server-sent events from bytes that arrive in any pieces.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
"""

from dataclasses import dataclass

__all__ = ["Event", "EventParser"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its data lines joined by a newline, and its type ("message" unless named)."""

    data: str
    type: str = "message"


class EventParser:
    """Incremental: feed it bytes, cut anywhere, and it gives the events that became complete.

    Bytes are decoded by whole lines, so a character that is cut between two pieces is never damaged. A line that is not
    UTF-8 is decoded with U+FFFD, as the specification asks.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._after_cr = False
        self._is_first_line = True
        self._data: list[str] = []
        self._type = ""

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes of the stream; returns the events they completed, oldest first."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        self._pending += piece
        events: list[Event] = []
        start = 0
        while (end := self._line_end(start)) >= 0:
            self._take_line(bytes(self._pending[start:end]), events)
            start = end + 1
            if self._pending[end] == 0x0D:
                if start == len(self._pending):
                    self._after_cr = True
                elif self._pending[start] == 0x0A:
                    start += 1
        del self._pending[:start]
        return events

    def _line_end(self, start: int) -> int:
        newline = self._pending.find(b"\n", start)
        carriage_return = self._pending.find(b"\r", start, newline if newline >= 0 else len(self._pending))
        return carriage_return if carriage_return >= 0 else newline

    def _take_line(self, raw: bytes, events: list[Event]) -> None:
        line = raw.decode("utf-8", "replace")
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix("\ufeff")
        if not line:
            if self._data:
                events.append(Event("\n".join(self._data), self._type or "message"))
            self._data, self._type = [], ""
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
