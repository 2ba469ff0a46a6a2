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
        self._searched = 0
        self._after_cr = False
        self._is_first_line = True
        self._is_in_event = False
        self._data: list[str] = []
        self._type = ""

    @property
    def is_between_events(self) -> bool:
        """True when the bytes so far end where an event has ended, so that a comment can follow."""
        return not (self._is_in_event or self._after_cr or self._pending)

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next bytes of the stream; returns the events they completed, oldest first."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        self._pending += piece
        events: list[Event] = []
        start = 0
        while (end := self._line_end(max(start, self._searched))) >= 0:
            self._take_line(self._pending[start:end], events)
            start = end + 1
            if self._pending[end] == 0x0D:
                if start == len(self._pending):
                    self._after_cr = True
                elif self._pending[start] == 0x0A:
                    start += 1
        del self._pending[:start]
        self._searched = len(self._pending)
        return events

    def _line_end(self, start: int) -> int:
        newline = self._pending.find(b"\n", start)
        carriage_return = self._pending.find(b"\r", start, newline if newline >= 0 else len(self._pending))
        return carriage_return if carriage_return >= 0 else newline

    def _take_line(self, raw: bytearray, events: list[Event]) -> None:
        line = raw.decode("utf-8", "replace")
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix("\ufeff")
        self._is_in_event = bool(line)
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
