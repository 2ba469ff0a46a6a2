"""Tunnels that lead nowhere, for tests of what opens them."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from vfx.errors import TunnelError


class Tunnels:
    """Opens tunnels to the local URL itself, and remembers which are open."""

    def __init__(
        self,
        *,
        delay: float = 0.0,
        is_failing: Callable[[int], bool] = lambda number: False,
        failing_teardowns: Sequence[int] = (),
        close_delay: float = 0.0,
        public_url: str | None = None,
    ) -> None:
        """See the class.

        Args:
            delay: Seconds until one is open, or has failed.
            is_failing: Whether the tunnel with that number, from 0, fails to open.
            failing_teardowns: Numbers of those whose closing fails.
            close_delay: Seconds that closing one takes.
            public_url: What they give; None = the local URL.
        """
        self.delay = delay
        self._is_failing = is_failing
        self._failing_teardowns = failing_teardowns
        self._close_delay = close_delay
        self._public_url = public_url
        self.asked = 0
        self.open: list[str] = []
        self.closed: list[str] = []
        self.opening = 0
        self.peak_opening = 0
        self.closed_in_peace = 0

    @asynccontextmanager
    async def __call__(self, local_url: str) -> AsyncGenerator[str]:
        number = self.asked
        self.asked += 1
        self.opening += 1
        self.peak_opening = max(self.peak_opening, self.opening)
        try:
            await anyio.sleep(self.delay)
        finally:
            self.opening -= 1
        if self._is_failing(number):
            raise TunnelError(f"tunnel {number} refused")
        self.open.append(local_url)
        try:
            # As real ones do, it holds tasks of its own.
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                yield self._public_url or local_url
                await anyio.sleep(self._close_delay)
                self.closed_in_peace += 1
                group.cancel_scope.cancel()
        finally:
            self.open.remove(local_url)
            self.closed.append(local_url)
            if number in self._failing_teardowns:
                raise OSError("the far side is gone")
