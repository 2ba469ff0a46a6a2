"""The way of one answer to everyone who asked for it: the first attempt, and those that join it or come later."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import anyio

from vfx.interception.exchange import Exchange, error_headers

__all__ = ["Outlet"]


class Outlet:
    """Passes an answer on as it comes, and keeps it for those who ask again."""

    def __init__(self, exchange: Exchange) -> None:
        """See the class.

        Args:
            exchange: The request that the call is made for.
        """
        self._first: Exchange | None = exchange
        self._dialect = exchange.dialect
        self._status: int | None = None
        self._headers: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []
        self._callers = 1
        self._news = anyio.Event()
        self._came = anyio.Event()
        self._left = anyio.Event()
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
        self._tell()
        if self._first is not None:
            await self._first.start(status, self._headers)

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        self._pieces.append(piece)
        self._tell()
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
        self._first = None
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def wanted(self) -> None:
        """Wait until somebody waits for the answer."""
        while not self._callers:
            await self._came.wait()

    async def deserted(self, grace: float) -> None:
        """Wait until nobody has been waiting for the answer for `grace` seconds."""
        while True:
            while self._callers:
                await self._left.wait()
            with anyio.move_on_after(grace) as waiting:
                await self.wanted()
            if waiting.cancelled_caught:
                return

    def leave(self) -> None:
        """One who waited has gone."""
        self._callers -= 1
        self._left.set()
        self._left = anyio.Event()

    @asynccontextmanager
    async def joined(self) -> AsyncGenerator[None]:
        """One more waits for the answer."""
        self._callers += 1
        self._came.set()
        self._came = anyio.Event()
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
