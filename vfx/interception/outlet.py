"""The way of one answer to everyone who asked for it: the first attempt, and those that join it or come later."""

import math
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import anyio

from vfx.interception.exchange import Exchange, error_headers

__all__ = ["Outlet"]


class Outlet:
    """Passes an answer on as it comes, and keeps it for those who ask again.

    It cancels the call when everyone who waited for the answer has gone, and nobody came in time to ask again.
    """

    __slots__ = (
        "_callers",
        "_came",
        "_dialect",
        "_first",
        "_grace",
        "_headers",
        "_news",
        "_pieces",
        "_running",
        "_status",
        "is_complete",
        "is_ended",
    )

    def __init__(self, exchange: Exchange, *, grace: float) -> None:
        """See the class.

        Args:
            exchange: The request that the call is made for.
            grace: Seconds in which somebody may ask again.
        """
        self._first: Exchange | None = exchange
        self._dialect = exchange.dialect
        self._status: int | None = None
        self._headers: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []
        self._callers = 1
        self._grace = grace
        self._running: anyio.CancelScope | None = exchange.cancel_scope
        self._news = _Bell()
        self._came = _Bell()
        self.is_ended = False
        """True when nothing more comes."""
        self.is_complete = False
        """True when it ended properly."""

    @property
    def is_started(self) -> bool:
        """True once there is a status."""
        return self._status is not None

    @property
    def is_wanted(self) -> bool:
        """True while somebody waits for the answer."""
        return self._callers > 0

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(map(len, self._pieces))

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send status and headers."""
        self._status, self._headers = status, list(headers)
        self._news.ring()
        if self._first is not None:
            await self._first.start(status, self._headers)

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        self._pieces.append(piece)
        self._news.ring()
        if self._first is not None:
            await self._first.write(piece)

    async def finish(self, last: bytes = b"") -> None:
        """End the body properly."""
        if last:
            self._pieces.append(last)
        self.is_complete, first = True, self._first
        self.end()
        if first is not None:
            await first.finish(last)

    async def reply(self, status: int, body: bytes, headers: Iterable[tuple[str, str]]) -> None:
        """Send a whole response."""
        await self.start(status, [*headers, ("content-length", str(len(body)))])
        await self.finish(body)

    async def refuse(
        self, status: int, message: str, *, type: str = "invalid_request_error", code: str | None = None, **headers: str
    ) -> None:
        """Send an error in the dialect's form; `headers` are named with underscores."""
        body = self._dialect.error_body(message, type=type, code=code)
        await self.reply(status, body, error_headers(headers))

    def end(self) -> None:
        """Nothing more comes; an answer that was not finished ends broken for everyone."""
        self.is_ended = True
        # Whoever comes later needs the bytes, not the connection that the first came by.
        self._first = self._running = None
        self._news.ring()

    async def wanted(self) -> None:
        """Wait until somebody waits for the answer."""
        while not self._callers:
            await self._came.wait()

    def leave(self) -> None:
        """One who waited has gone."""
        self._callers -= 1
        if not self._callers and self._running is not None:
            self._running.deadline = anyio.current_time() + self._grace

    @asynccontextmanager
    async def joined(self) -> AsyncGenerator[None]:
        """One more waits for the answer."""
        self._callers += 1
        self._came.ring()
        if self._running is not None:
            self._running.deadline = math.inf
        try:
            yield
        finally:
            self.leave()

    async def follow(self, exchange: Exchange) -> None:
        """Send the answer to `exchange` too, from its beginning; one that breaks off is broken there as well."""
        async with self.joined():
            while self._status is None and not self.is_ended:
                await self._news.wait()
            if self._status is None:
                return
            await exchange.start(self._status, self._headers)
            position = 0
            while True:
                while position < len(self._pieces):
                    position += 1
                    await exchange.write(self._pieces[position - 1])
                if self.is_ended:
                    break
                await self._news.wait()
            if self.is_complete:
                await exchange.finish()


class _Bell:
    """Wakes those who wait for the next time that something happens; costs nothing while nobody does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def ring(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
