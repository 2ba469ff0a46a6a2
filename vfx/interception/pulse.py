"""Keeps streams alive while their providers are silent."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from vfx.interception.outlet import Outlet

__all__ = ["Heart", "Pulse"]

COMMENT = b": keep-alive\n\n"


class Pulse:
    """Writes a stream, and comments that stand between its events only."""

    __slots__ = ("_is_between_events", "_lock", "_outlet", "last")

    def __init__(self, outlet: Outlet, is_between_events: Callable[[], bool]) -> None:
        """See the class.

        Args:
            outlet: Where it goes.
            is_between_events: Whether a comment can follow what was written.
        """
        self._outlet = outlet
        self._is_between_events = is_between_events
        self._lock = anyio.Lock(fast_acquire=True)
        self.last = anyio.current_time()
        """When something was written, or a comment was due."""

    async def write(self, piece: bytes) -> None:
        """Pass on bytes of which `is_between_events` knows already."""
        async with self._lock:
            await self._outlet.write(piece)
            self.last = anyio.current_time()

    async def beat(self, due: float) -> None:
        """Send a comment that became due at `due`, unless the stream has gone on or ended since then."""
        async with self._lock:
            if self.last == due and not self._outlet.is_ended and self._is_between_events():
                await self._outlet.write(COMMENT)


class Heart:
    """Beats for all streams of a server: a task for each would cost more than the rest of a small one."""

    def __init__(self, interval: float) -> None:
        """See the class.

        Args:
            interval: Seconds of silence after which a comment is sent.
        """
        self._interval = interval
        self._pulses: set[Pulse] = set()

    @contextmanager
    def pulse(self, outlet: Outlet, is_between_events: Callable[[], bool]) -> Generator[Pulse]:
        """A stream that is kept alive as long as the context lasts; for the arguments see `Pulse`."""
        pulse = Pulse(outlet, is_between_events)
        self._pulses.add(pulse)
        try:
            yield pulse
        finally:
            self._pulses.discard(pulse)

    async def beat(self) -> None:
        """Send comments, for ever."""
        async with anyio.create_task_group() as group:
            while True:
                now = anyio.current_time()
                for pulse in self._pulses:
                    if pulse.last + self._interval <= now:
                        pulse.last = now
                        # On its own, since the program of one stream may not read.
                        group.start_soon(pulse.beat, now, name="keep-alive")
                # A stream that begins meanwhile is due later than that.
                first = min((pulse.last for pulse in self._pulses), default=now)
                await anyio.sleep_until(first + self._interval)
