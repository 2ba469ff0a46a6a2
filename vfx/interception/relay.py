"""One model call: admitted by its session, sent on in the same dialect, passed back byte for byte, and recorded."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar, cast

import anyio
from anyio import to_thread

from vfx.clients.base import Client, ProviderRequest, ProviderResponse
from vfx.dialects import chat
from vfx.dialects.chat_stream import StreamAssembler
from vfx.errors import InterceptionError, ProviderError, RolloutError, attributed
from vfx.interception.exchange import Exchange
from vfx.interception.session import Refusal, Session, Turn
from vfx.messages import Completion, Message
from vfx.redaction import redact

__all__ = ["Relay"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Parsing takes about 10 ms per megabyte; smaller bodies would wait longer for a thread than that.
LARGE_BODY = 256 * 1024

COMMENT = b": keep-alive\n\n"

_KEPT_BACK = frozenset(
    {
        b"accept-encoding",
        b"api-key",
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"expect",
        b"host",
        b"keep-alive",
        b"origin",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
    }
)
_NO_RETRY = ("x-should-retry", "false")


class Relay:
    """Passes calls on to one client."""

    def __init__(self, client: Client, *, keep_alive: float) -> None:
        self._client = client
        self._keep_alive = keep_alive

    async def list_models(self, exchange: Exchange, session: Session) -> None:
        """Pass on a listing of the provider's models; never a turn, whatever `session` is at."""
        request = ProviderRequest("models", b"", _passing(exchange), method="GET")
        try:
            async with self._client.send(request) as response:
                await exchange.reply(response.status, response.body, response.headers)
        except ProviderError as error:
            await _refuse_unanswered(exchange, error)

    async def complete(self, exchange: Exchange, session: Session) -> None:
        """Serve one chat completion, streamed or not."""
        raw = await exchange.read_body()
        if raw is None:
            return
        exchange.group.start_soon(exchange.cancel_on_hang_up, name="hang-up")
        try:
            body, prompt = await _off_the_loop(_read_request, raw, len(raw))
        except ValueError as error:
            await exchange.refuse(400, f"the request can't be read: {error}")
            return
        turn = session.admit()
        if isinstance(turn, Turn):
            turn.prompt, turn.tools = prompt, body.get("tools")
            await _Call(self._client, self._keep_alive, exchange, session, turn).run(body, raw)
        else:
            await _refuse_turn(exchange, turn)


class _Call:
    """An admitted call, until its turn is settled."""

    def __init__(self, client: Client, keep_alive: float, exchange: Exchange, session: Session, turn: Turn) -> None:
        self._client = client
        self._keep_alive = keep_alive
        self._exchange = exchange
        self._session = session
        self._turn = turn
        self._stream: StreamAssembler | None = None

    async def run(self, body: Mapping[str, Any], raw: bytes) -> None:
        """Make the call. The turn is settled afterwards, whatever happens."""
        try:
            with attributed(InterceptionError, "interception"):
                refusal = await self._find_stop()
                if refusal is None:
                    await self._send(body, raw)
                else:
                    await _refuse_turn(self._exchange, refusal)
        except anyio.get_cancelled_exc_class():
            self._hang_up()
            raise
        except RolloutError as error:
            self._session.fail(self._turn, error)
            raise
        finally:
            self._session.abandon(self._turn)

    async def _find_stop(self) -> Refusal | None:
        session = self._session
        if session.find_stop is None:
            return None
        try:
            condition = await session.find_stop()
        except RolloutError as error:
            session.fail(self._turn, error)
            session.give_up(str(error))
            return Refusal(str(error), is_stop=False)
        return None if condition is None else session.stop(condition, self._turn)

    async def _send(self, body: Mapping[str, Any], raw: bytes) -> None:
        session, turn = self._session, self._turn
        imposed = chat.impose(body, session.model, session.sampling)
        turn.effective = chat.read_sampling(imposed, also=session.sampling.extra)
        request = ProviderRequest(
            path="chat/completions",
            body=raw if imposed == body else await _off_the_loop(_serialise, imposed, len(raw)),
            headers=_passing(self._exchange),
            is_stream=bool(body.get("stream")),
        )
        try:
            async with self._client.send(request) as response:
                turn.attempts, turn.waited = response.attempts, response.waited
                if response.chunks is None:
                    await self._pass_whole(response)
                else:
                    self._stream = StreamAssembler(_count_choices(imposed))
                    await self._pass_stream(response, response.chunks, self._stream)
        except ProviderError as error:
            session.fail(turn, error)
            if not self._exchange.is_started:
                await _refuse_unanswered(self._exchange, error)

    async def _pass_whole(self, response: ProviderResponse) -> None:
        session, turn, headers = self._session, self._turn, response.headers
        session.note_first_byte(turn)
        if response.error is None:
            try:
                session.commit(turn, await _off_the_loop(_read_answer, response.body, len(response.body)))
            except ValueError as error:
                # The program gets it all the same: what it makes of it is its own affair.
                text = f"answer is not a chat completion: {error}"
                session.fail(turn, ProviderError(text, status=response.status))
        else:
            session.fail(turn, response.error)
            if response.error.fatal or response.error.is_final:
                headers = [header for header in headers if header[0].lower() != _NO_RETRY[0]] + [_NO_RETRY]
        await self._exchange.reply(response.status, response.body, headers)

    async def _pass_stream(
        self, response: ProviderResponse, chunks: AsyncIterator[bytes], stream: StreamAssembler
    ) -> None:
        """Pass each piece on as it comes. The body is ended properly only when the answer is complete."""
        exchange, session, turn = self._exchange, self._session, self._turn
        await exchange.start(response.status, response.headers)
        pulse = _Pulse(exchange, stream, self._keep_alive)
        exchange.group.start_soon(pulse.beat, name="keep-alive")
        failure: ProviderError | None = None
        try:
            async for piece in chunks:
                session.note_first_byte(turn)
                stream.feed(piece)
                if stream.is_done and stream.is_complete:
                    # Before the program sees the end: it may exit on it, and is scored on this answer.
                    session.commit(turn, stream.completion())
                await pulse.write(piece)
            stream.finish()
        except ProviderError as error:
            failure = error
        if stream.is_complete:
            session.commit(turn, stream.completion())
            await exchange.finish()
            return
        if failure is None:
            why = stream.error or "it ended without its terminal event"
            failure = ProviderError(f"provider stream incomplete: {why}", status=response.status)
        session.fail(turn, failure, partial=stream.completion(), text=stream.text)

    def _hang_up(self) -> None:
        stream = self._stream
        if stream is None:
            self._session.hang_up(self._turn)
        elif stream.is_complete:
            # Some programs leave as soon as they have read the finish reason.
            self._session.commit(self._turn, stream.completion())
        else:
            self._session.hang_up(self._turn, partial=stream.completion(), text=stream.text)


class _Pulse:
    """Keeps a stream alive while the provider is silent, with comments that stand between events only."""

    def __init__(self, exchange: Exchange, stream: StreamAssembler, interval: float) -> None:
        self._exchange = exchange
        self._stream = stream
        self._interval = interval
        self._last = anyio.current_time()
        self._lock = anyio.Lock(fast_acquire=True)

    async def write(self, piece: bytes) -> None:
        """Pass on bytes which the stream has been fed just before."""
        async with self._lock:
            await self._exchange.write(piece)
            self._last = anyio.current_time()

    async def beat(self) -> None:
        """Send a comment after each interval of silence, for ever."""
        while True:
            await anyio.sleep_until(self._last + self._interval)
            async with self._lock:
                # Asked again: while the lock was awaited, a piece was fed that has not been passed on yet.
                if anyio.current_time() - self._last < self._interval:
                    continue
                if self._stream.is_between_events:
                    await self._exchange.write(COMMENT)
                self._last = anyio.current_time()


def _passing(exchange: Exchange) -> list[tuple[str, str]]:
    """The program's headers that may reach the provider."""
    named = exchange.headers.get(b"connection", b"").lower().split(b",")
    kept_back = _KEPT_BACK.union(name.strip() for name in named)
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in exchange.header_lines
        if name not in kept_back
    ]


def _count_choices(body: Mapping[str, Any]) -> int:
    asked = body.get("n")
    return asked if isinstance(asked, int) else 1


async def _off_the_loop(work: Callable[[Item], Result], item: Item, body_bytes: int) -> Result:
    """What `work` makes of `item`, in a thread when the body that it stands for is large."""
    return await to_thread.run_sync(work, item) if body_bytes > LARGE_BODY else work(item)


def _read_request(raw: bytes) -> tuple[dict[str, Any], list[Message]]:
    body = _parse(raw)
    return body, chat.read_prompt(body)


def _read_answer(raw: bytes) -> Completion:
    return chat.read_completion(_parse(raw))


def _parse(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`.

    Raises:
        ValueError: It is none.
    """
    try:
        value = json.loads(raw)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")  # noqa: TRY004
    return cast("dict[str, Any]", value)


def _serialise(body: Mapping[str, Any]) -> bytes:
    """JSON in ASCII, since escapes also carry lone surrogates."""
    return json.dumps(body, separators=(",", ":")).encode("ascii")


async def _refuse_turn(exchange: Exchange, refusal: Refusal) -> None:
    # 400 and no retry: SDKs ask again after 429 and 5xx, and would never notice that the rollout is over.
    code = "rollout_stopped" if refusal.is_stop else "rollout_failed"
    await exchange.refuse(400, redact(refusal.message), code=code, x_should_retry="false")


async def _refuse_unanswered(exchange: Exchange, error: ProviderError) -> None:
    # The client has tried again as often as the user allows.
    await exchange.refuse(
        error.status or 502, redact(str(error)), type="provider_error", code="no_answer", x_should_retry="false"
    )
