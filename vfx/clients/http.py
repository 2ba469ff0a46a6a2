"""The client of any OpenAI-compatible endpoint: retries, a pace shared by all calls, errors that name the way out."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio

from vfx.clients.base import Client, HttpSettings, ProviderRequest, ProviderResponse
from vfx.clients.endpoint import Endpoint
from vfx.clients.refusal import is_out_of_quota, refusal
from vfx.clients.retry import RETRIED, Pace, asked_wait, backoff, spread
from vfx.errors import Mistake, ProviderError

if TYPE_CHECKING:
    from vfx.clients.transport import Exchange, NotConnected, Transport

__all__ = ["HttpClient"]

# An endpoint that never answered is most likely a wrong address: the user should hear of it soon.
FIRST_CONTACT_RETRIES = 2
FIRST_CONTACT_WAIT_S = 0.25


class HttpClient(Client):
    """Calls one HTTP endpoint.

    Args:
        settings: The user's.
        key: The key itself, for an endpoint that vfx has started; None = the variable that the settings name.
        clock: Seconds since the epoch.
        sleep: Waits that many seconds.
        jitter: A number within [0, 1), another each time.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        key: str | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._endpoint = Endpoint(settings, key=key)
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._pace = Pace()
        self._waits: dict[object, float] = {}
        self._has_answered = False
        self._transport: Transport | None = None

    @property
    def default_model(self) -> str | None:
        """None: an endpoint has many."""
        return None

    @property
    def endpoint(self) -> str:
        """See `Client.endpoint`."""
        return self._endpoint.address

    def mistakes(self) -> list[Mistake]:
        """See `Client.mistakes`."""
        return self._endpoint.mistakes()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Client.serving`."""
        # Here and not above: the client is made before the command line is checked.
        from vfx.clients.transport import open_transport  # noqa: PLC0415

        async with open_transport(self._endpoint, self._settings.idle_timeout) as self._transport:
            try:
                yield
            finally:
                self._transport = None

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        if self._transport is None:
            raise RuntimeError("the client is not serving")
        call = _Call(self, self._transport, request)
        exchange, error = await call.exchange()
        try:
            yield ProviderResponse(
                exchange.status, exchange.headers, exchange.body, exchange.chunks, error, call.attempts, call.waited
            )
        finally:
            exchange.close()

    async def _pause(self, seconds: float, reason: str) -> float:
        """Wait, visibly; returns the seconds."""
        with self._seen_waiting(seconds, reason):
            await self._sleep(seconds)
        return seconds

    @contextmanager
    def _seen_waiting(self, seconds: float, reason: str) -> Generator[None]:
        wait = object()
        self._waits[wait] = self._clock() + seconds
        self.waiting.reason = reason
        self._count_waits()
        try:
            yield
        finally:
            del self._waits[wait]
            self._count_waits()

    def _count_waits(self) -> None:
        self.waiting.calls = len(self._waits)
        self.waiting.until = max(self._waits.values(), default=0.0)
        if not self._waits:
            self.waiting.reason = ""


class _Call:
    """One request on its way to an answer: its attempts, and what it waited for."""

    def __init__(self, client: HttpClient, transport: "Transport", request: ProviderRequest) -> None:
        self._client = client
        self._transport = transport
        self._request = request
        self._holds = 0
        self.attempts = 0
        self.waited = 0.0
