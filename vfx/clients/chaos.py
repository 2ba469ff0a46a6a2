"""Faults on purpose: a client around another one that fails some requests as a provider does now and then.

A request that meets a fault is not sent at all, but for a stream that is cut: that one begins, then breaks off.
"""

import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio

from vfx._concurrency import off_the_loop
from vfx.clients.base import (
    Client,
    HttpSettings,
    LocalSettings,
    ProviderRequest,
    ProviderResponse,
    ScriptedSettings,
)
from vfx.clients.faults import Asked, Faults, status_of
from vfx.clients.retry import RETRIED, backoff, spread
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS
from vfx.errors import Mistake, ProviderError

__all__ = ["ChaosClient"]

MARK = "injected by --client.chaos"
MAX_PASSED_BYTES = 600
"""A stream is cut after at most this much of it."""

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class ChaosClient(Client):
    """Injects the faults that were asked for, and sends again as the settings say, before it troubles the program.

    Args:
        inner: Who makes the calls. Has retries of its own for what its provider does.
        settings: The user's.
        clock: Seconds since the epoch.
        sleep: Waits that many seconds.
    """

    def __init__(
        self,
        inner: Client,
        settings: HttpSettings | LocalSettings | ScriptedSettings,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        super().__init__()
        # One of each for the whole chain: who watches looks at the outermost client.
        self.waiting, self.observer = inner.waiting, inner.observer
        self.tape, self.skipped, self.discarded = inner.tape, inner.skipped, inner.discarded
        self._inner = inner
        self._settings = settings
        self._clock, self._sleep = clock, sleep
        self._faults = Faults(settings.chaos, settings.chaos_seed)

    @property
    def default_model(self) -> str | None:
        """The inner client's."""
        return self._inner.default_model

    @property
    def endpoint(self) -> str:
        """The inner client's."""
        return self._inner.endpoint

    def mistakes(self) -> list[Mistake]:
        """Those of the inner client; faults are checked with the settings."""
        return self._inner.mistakes()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Client.serving`."""
        async with self._inner.serving():
            yield

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        call = _Call(request, await self._ask(request))
        fault = await self._get_through(call)
        if fault is not None and (status := status_of(fault)) is not None:
            yield self._refused(call, status)
            return
        if fault == "slow":
            await self._sleep(self._settings.chaos_delay)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(self._inner.send(request))
            except ProviderError as error:
                _note(error, call)
                raise
            if fault == "cut" and response.chunks is not None:
                self._inject(call, fault)
                response.chunks = CutChunks(response.chunks, request, call.asked.chance(call.attempts, "cut"))
            response.attempts += call.attempts
            response.waited += call.waited
            response.notes = (*call.notes, *response.notes)
            yield response

    async def _ask(self, request: ProviderRequest) -> Asked:
        work = partial(self._faults.digest, request.method, request.path, request.body)
        return self._faults.ask(await off_the_loop(work, len(request.body)))

    async def _get_through(self, call: "_Call") -> str | None:
        """Meet faults until an attempt is let through, or the retries are over.

        Returns:
            The fault of the last attempt; None = it has none.

        Raises:
            ProviderError: There is no connection, or it broke.
        """
        while True:
            fault = self._faults.find(call.asked, call.attempts)
            if fault is None or (fault == "cut" and call.request.is_stream):
                return fault
            self._inject(call, fault)
            if fault == "slow":
                return fault
            call.attempts += 1
            status = status_of(fault)
            if status == 429:
                self.observer.pushed_back(time.monotonic())
            is_retried = status is None or status in RETRIED
            if not is_retried or call.attempts > self._settings.max_retries:
                if status is not None:
                    return fault
                error = ProviderError(f"connection {fault}, {MARK}{call.suffix}")
                _note(error, call)
                raise error
            self.waiting.retries += 1
            await self._wait(call, fault)

    def _inject(self, call: "_Call", fault: str) -> None:
        self.injected_faults[fault] += 1
        call.notes.append(f"{fault} {MARK}")

    async def _wait(self, call: "_Call", fault: str) -> None:
        """Wait before the next attempt as after a fault of the provider's, but hold back nobody else."""
        jitter = call.asked.chance(call.attempts, "wait")
        longest = self._settings.max_retry_wait
        seconds = spread(self._asked_wait(call), jitter) if fault == "429" else backoff(call.attempts, longest, jitter)
        call.waited += seconds
        with self.waiting.shown(self._clock() + seconds, f"{fault} {MARK}"):
            await self._sleep(seconds)

    def _asked_wait(self, call: "_Call") -> float:
        """What a 429 asks for: as long as vfx would wait by itself."""
        return backoff(call.attempts, self._settings.max_retry_wait, 0.0)

    def _refused(self, call: "_Call", status: int) -> ProviderResponse:
        text = f"HTTP {status} {MARK}{call.suffix}"
        headers = [("Content-Type", "application/json")]
        if status == 429:
            asked = self._asked_wait(call)
            headers += [("Retry-After", str(math.ceil(asked))), ("retry-after-ms", f"{1000 * asked:.0f}")]
        kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        body = _dialect(call.request).error_body(text, type=kind, code="injected")
        # Never fatal: the next call may well get through.
        error = ProviderError(text, status=status)
        return ProviderResponse(
            status, headers, body, error=error, attempts=call.attempts, waited=call.waited, notes=call.notes
        )


class _Call:
    """What has come of one call so far."""

    def __init__(self, request: ProviderRequest, asked: Asked) -> None:
        self.request = request
        self.asked = asked
        self.attempts = 0
        """Requests that met a fault."""
        self.waited = 0.0
        self.notes: list[str] = []

    @property
    def suffix(self) -> str:
        return f" (after {self.attempts} attempts)" if self.attempts > 1 else ""


class CutChunks:
    """A stream that breaks off within its answer.

    Args:
        chunks: The stream.
        request: What it answers.
        chance: Within [0, 1); how much of it passes.
    """

    def __init__(self, chunks: AsyncIterator[bytes], request: ProviderRequest, chance: float) -> None:
        self._chunks = chunks
        self._request = request
        self._left = 1 + int(chance * MAX_PASSED_BYTES)
        self._passed = b""

    def __aiter__(self) -> "CutChunks":
        return self

    async def __anext__(self) -> bytes:
        chunk = b"" if self._left == 0 else await anext(self._chunks, b"")
        piece = chunk[: self._left]
        while piece and self._would_end(piece):
            piece = piece[: len(piece) // 2]
        if not piece:
            raise ProviderError(f"provider stream incomplete: cut, {MARK}")
        # What is left of a piece that was cut short never comes.
        self._left = self._left - len(piece) if len(piece) == len(chunk) else 0
        self._passed += piece
        return piece

    def _would_end(self, piece: bytes) -> bool:
        """Whether the answer would be whole with `piece`: it is to break before."""
        stream = _dialect(self._request).assemble(cast("dict[str, Any]", json.loads(self._request.body)))
        stream.feed(self._passed + piece)
        # Half an event after the last one that counts doesn't undo it.
        is_whole = stream.is_complete
        stream.finish()
        return is_whole or stream.is_complete


def _dialect(request: ProviderRequest) -> Dialect:
    path = request.path.partition("?")[0]
    is_anthropic = path == f"{ANTHROPIC.path}/count_tokens"
    return ANTHROPIC if is_anthropic else next((one for one in DIALECTS.values() if one.path == path), CHAT)


def _note(error: ProviderError, call: _Call) -> None:
    for note in call.notes:
        error.add_note(note)
