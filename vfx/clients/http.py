"""The client of any OpenAI-compatible endpoint: retries, a pace shared by all calls, errors that name the way out."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from vfx.clients.base import Client, HttpSettings, ProviderRequest, ProviderResponse
from vfx.clients.endpoint import Endpoint
from vfx.clients.refusal import is_out_of_quota, refusal
from vfx.clients.retry import RETRIED, NotConnectedError, Pace, asked_wait, backoff, spread
from vfx.errors import Mistake, ProviderError

if TYPE_CHECKING:
    from vfx.clients.transport import Exchange, Transport

__all__ = ["HttpClient"]

# An endpoint that never answered is most likely a wrong address: the user should hear of it soon.
FIRST_CONTACT_RETRIES = 2
FIRST_CONTACT_WAIT_S = 0.25


@dataclass(slots=True)
class _Effort:
    """What one call has taken so far."""

    attempts: int = 0
    waited: float = 0.0
    sent: float = 0.0
    """When the last request went out, by `time.monotonic`."""
    holds: int = 0
    """Waits for the pace of the endpoint since it last answered anyone."""
    successes: int = 0
    """Answers that the pace had seen at the last of these waits."""

    @property
    def suffix(self) -> str:
        return f" (after {self.attempts} attempts)" if self.attempts > 1 else ""


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
        effort = _Effort(successes=self._pace.successes)
        exchange, error = await self._call(self._transport, request, effort)
        try:
            yield ProviderResponse(
                exchange.status, exchange.headers, exchange.body, exchange.chunks, error, effort.attempts, effort.waited
            )
            if exchange.chunks is not None:
                self.observer.answered(effort.sent)
        finally:
            exchange.close()

    async def _call(
        self, transport: "Transport", request: ProviderRequest, effort: _Effort
    ) -> tuple["Exchange", ProviderError | None]:
        while True:
            await self._keep_pace(effort)
            effort.attempts += 1
            self.waiting.retries += effort.attempts > 1
            effort.sent = time.monotonic()
            try:
                exchange = await transport.exchange(request)
            except NotConnectedError as failure:
                await self._before_reconnect(failure, effort)
                continue
            self._has_answered = True
            self._pace.successes += exchange.status != 429
            if exchange.status < 300:
                if exchange.chunks is None:
                    self.observer.answered(effort.sent)
                return exchange, None
            error = self._too_long_a_wait(exchange) or self._final_refusal(request, exchange, effort)
            if error:
                return exchange, error
            await self._before_retry(exchange, effort)

    def _too_long_a_wait(self, exchange: "Exchange") -> ProviderError | None:
        asked, longest = asked_wait(exchange.headers, self._clock()), self._settings.max_retry_wait
        if exchange.status not in RETRIED or asked is None or asked <= longest:
            return None
        why = "rate limited" if exchange.status == 429 else f"HTTP {exchange.status}"
        text = f"{why}: {self._endpoint.host} asked to wait {asked:g} s, more than --client.max-retry-wait {longest:g}"
        return ProviderError(text, status=exchange.status, is_final=True)

    def _final_refusal(self, request: ProviderRequest, exchange: "Exchange", effort: _Effort) -> ProviderError | None:
        """The error that ends the call; None when it is sent again. Others are held back in either case."""
        status = exchange.status
        is_retried = status in RETRIED and not is_out_of_quota(status, exchange.body)
        if is_retried:
            self._hold_back(exchange, effort)
        if is_retried and effort.attempts <= self._settings.max_retries:
            return None
        host, key_var = self._endpoint.host, self._endpoint.key_var
        return refusal(
            request, status, exchange.headers, exchange.body, host=host, key_var=key_var, suffix=effort.suffix
        )

    def _hold_back(self, exchange: "Exchange", effort: _Effort) -> None:
        now = self._clock()
        asked = asked_wait(exchange.headers, now)
        if exchange.status == 429 or (exchange.status == 503 and asked is not None):
            failures = max(effort.attempts, effort.holds + 1)
            wait = backoff(failures, self._settings.max_retry_wait, 1.0) if asked is None else asked
            self.observer.pushed_back(effort.sent)
            self._pace.hold(now + wait, f"{exchange.status} from {self._endpoint.host}")

    async def _before_retry(self, exchange: "Exchange", effort: _Effort) -> None:
        now = self._clock()
        if self._pace.wait(now):
            return  # The pace makes this call wait like all others.
        asked = asked_wait(exchange.headers, now)
        longest = self._settings.max_retry_wait
        wait = backoff(effort.attempts, longest, self._jitter()) if asked is None else spread(asked, self._jitter())
        await self._pause(wait, f"HTTP {exchange.status} from {self._endpoint.host}", effort)

    async def _before_reconnect(self, failure: NotConnectedError, effort: _Effort) -> None:
        allowed, first = self._settings.max_retries, None
        if not self._has_answered:
            allowed, first = min(allowed, FIRST_CONTACT_RETRIES), FIRST_CONTACT_WAIT_S
        if failure.is_final or effort.attempts > allowed:
            raise ProviderError(f"{failure}{effort.suffix}", fatal=failure.fatal) from failure
        wait = backoff(effort.attempts, self._settings.max_retry_wait, self._jitter(), first=first)
        await self._pause(wait, str(failure), effort)

    async def _keep_pace(self, effort: _Effort) -> None:
        while (left := self._pace.wait(self._clock())) > 0:
            if effort.successes != self._pace.successes:
                effort.successes, effort.holds = self._pace.successes, 0
            # Each time the wait was over, someone else was refused again: this call need not ask to know.
            if effort.holds > self._settings.max_retries:
                text = f"rate limited: {self._endpoint.host} lets no call through, waited {effort.waited:.1f} s"
                raise ProviderError(text, status=429)
            effort.holds += 1
            await self._pause(spread(left, self._jitter()), self._pace.reason, effort)

    async def _pause(self, seconds: float, reason: str, effort: _Effort) -> None:
        effort.waited += seconds
        with self.waiting.shown(self._clock() + seconds, reason):
            await self._sleep(seconds)
