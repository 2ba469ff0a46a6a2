"""Keeps a stream alive while its provider is silent."""

from collections.abc import Callable

import anyio

from vfx.interception.outlet import Outlet

__all__ = ["Pulse"]

COMMENT = b": keep-alive\n\n"


class Pulse:
    """Writes a stream, and comments that stand between its events only."""

    def __init__(self, outlet: Outlet, interval: float, is_between_events: Callable[[], bool]) -> None:
        """See the class.

        Args:
            outlet: Where it goes.
            interval: Seconds of silence after which a comment is sent.
            is_between_events: Whether one can follow what was written.
        """
        self._outlet = outlet
        self._interval = interval
        self._is_between_events = is_between_events
        self._last = anyio.current_time()
        self._lock = anyio.Lock(fast_acquire=True)

    async def write(self, piece: bytes) -> None:
        """Pass on bytes of which `is_between_events` knows already."""
        async with self._lock:
            await self._outlet.write(piece)
            self._last = anyio.current_time()

    async def beat(self) -> None:
        """Send a comment after each interval of silence, for ever."""
        while True:
            await anyio.sleep_until(self._last + self._interval)
            async with self._lock:
                # Asked again: while the lock was awaited, a piece came that has not been passed on yet.
                if anyio.current_time() - self._last < self._interval:
                    continue
                if self._is_between_events():
                    await self._outlet.write(COMMENT)
                self._last = anyio.current_time()
