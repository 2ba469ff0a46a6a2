"""One admitted call: sent on in the same dialect, passed back byte for byte, and recorded."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from vfx.clients.base import Client, ProviderRequest, ProviderResponse
from vfx.dialects.base import Dialect, StreamAssembler
from vfx.dialects.overflow import tells_overflow
from vfx.dialects.rewrites import REWRITES
from vfx.errors import InterceptionError, ProviderError, RolloutError, TaskError, attributed
from vfx.interception.document import LARGE_BODY, Document, off_the_loop, parse, serialise
from vfx.interception.exchange import Exchange
from vfx.interception.headers import passing
from vfx.interception.outlet import Outlet
from vfx.interception.pulse import Heart, Pulse
from vfx.interception.session import Refusal, Session, Turn
from vfx.messages import Completion, Message, Sampling
from vfx.redaction import redact

__all__ = ["Call", "ReadRequest", "refuse_turn", "refuse_unanswered", "with_query"]

_NO_RETRY = ("x-should-retry", "false")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request for a turn, read."""

    document: Document
    prompt: list[Message]
    digest: bytes
    """Identity of the request."""
    num_bytes: int

    @property
    def is_stream(self) -> bool:
        """True when the program wants a stream."""
        return bool(self.document.body.get("stream"))


class Call:
    """An admitted call, until its turn is settled."""

    def __init__(
        self, client: Client, heart: Heart, exchange: Exchange, outlet: Outlet, session: Session, turn: Turn
    ) -> None:
        self._client = client
        self._heart = heart
        self._exchange = exchange
        self._outlet = outlet
        self._session = session
        self._turn = turn
        self._dialect = exchange.dialect
        self._stream: StreamAssembler | None = None
        self._answer: Completion | None = None
        """What came whole and waits for somebody to take it."""

    async def run(self, read: ReadRequest) -> None:
        """Make the call. The turn is settled afterwards, whatever happens."""
        try:
            with attributed(InterceptionError, "interception"):
                body = await self._admitted(read)
                if isinstance(body, Refusal):
                    await refuse_turn(self._outlet, body)
                else:
                    await self._send(read, body)
        except anyio.get_cancelled_exc_class():
            self._hang_up()
            raise
        except RolloutError as error:
            self._session.fail(self._turn, error)
            raise
        finally:
            self._session.abandon(self._turn)

    async def _admitted(self, read: ReadRequest) -> Mapping[str, Any] | Refusal:
        """What the program wants to be sent, as the task's hooks let it pass."""
        session, turn = self._session, self._turn
        try:
            if session.find_stop is not None and (condition := await session.find_stop()) is not None:
                return session.stop(condition, turn)
            return await self._show_results(read)
        except RolloutError as error:
            session.fail(turn, error)
            return session.give_up(error)

    async def _show_results(self, read: ReadRequest) -> Mapping[str, Any]:
        """The request with its tool results as the task's intercept hooks want them."""
        session, turn, body, prompt = self._session, self._turn, read.document.body, read.prompt
        if session.rewriter is not None and session.rewriter.sees_requests:
            wanted, contents = await session.rewriter.rewrite_results(prompt)
            if contents:
                body = REWRITES[self._dialect.route].put_results(body, contents)
                # Read again: the trace has what is sent, whatever became of the hook's wish.
                prompt = self._dialect.read_prompt(self._dialect.resolve(body, session.kept_items))
                _check_rewritten(read.prompt, wanted, prompt)
        turn.prompt, turn.tools = prompt, body.get("tools")
        if (earlier := self._dialect.read_earlier(body)) is not None:
            turn.prompt = self._dialect.extend(session.recall(turn, earlier), prompt)
        return body

    async def _send(self, read: ReadRequest, body: Mapping[str, Any]) -> None:
        session, turn = self._session, self._turn
        imposed = self._dialect.impose(body, session.model, session.sampling)
        turn.effective = self._dialect.read_sampling(imposed, also=session.sampling.extra)
        turn.notes += _ignored(session.sampling, self._dialect)
        request = ProviderRequest(
            path=with_query(self._dialect.path, self._exchange),
            body=await off_the_loop(partial(read.document.replaced, imposed), read.num_bytes),
            headers=passing(self._exchange),
            is_stream=read.is_stream,
            model=session.model,
            asker=session.trace,
            prompt=turn.prompt,
        )
        try:
            async with self._client.send(request) as response:
                turn.attempts, turn.waited = response.attempts, response.waited
                turn.notes += response.notes
                turn.endpoint, turn.taped = response.endpoint, response.taped
                if response.chunks is None:
                    await self._pass_whole(response)
                else:
                    self._stream = self._dialect.assemble(imposed)
                    await self._pass_stream(response, response.chunks, self._stream)
        except ProviderError as error:
            turn.notes += getattr(error, "__notes__", ())
            session.fail(turn, error)
            if not self._outlet.is_started:
                await refuse_unanswered(self._outlet, error)

    async def _pass_whole(self, response: ProviderResponse) -> None:
        session, turn, headers, body = self._session, self._turn, response.headers, response.body
        session.note_first_byte(turn)
        if response.error is None:
            try:
                answer = self._answer = await off_the_loop(partial(self._read_answer, body), len(body))
            except ValueError as error:
                # The program gets it all the same: what it makes of it is its own affair.
                text = f"answer is not {self._dialect.answer}: {error}"
                session.fail(turn, ProviderError(text, status=response.status))
            else:
                # An answer that nobody takes is no turn.
                await self._outlet.wanted()
                session.commit(turn, answer)
                pairs = await self._show_answer(answer)
                if isinstance(pairs, Refusal):
                    await refuse_turn(self._outlet, pairs)
                    return
                if pairs:
                    body = serialise(REWRITES[self._dialect.route].put_answers(parse(body), pairs))
        else:
            session.fail(turn, response.error)
            if response.error.fatal or response.error.is_final or session.fails_for_good:
                headers = [header for header in headers if header[0].lower() != _NO_RETRY[0]] + [_NO_RETRY]
        await self._outlet.reply(response.status, body, headers)

    def _read_answer(self, raw: bytes) -> Completion:
        answer = self._dialect.read_completion(parse(raw))
        if len(raw) > LARGE_BODY:
            self._session.trace.graph.prepare(answer.messages)
        return answer

    async def _show_answer(self, answer: Completion) -> Sequence[tuple[Message, Message]] | Refusal:
        """What the task's intercept hooks put in the place of each message; empty when nothing changes."""
        session = self._session
        if session.rewriter is None or not session.rewriter.sees_responses:
            return ()
        try:
            rewritten = await session.rewriter.rewrite_answers(answer.messages)
        except RolloutError as error:
            return session.give_up(error)
        pairs = list(zip(answer.messages, rewritten, strict=True))
        return pairs if any(before is not after for before, after in pairs) else ()

    async def _pass_stream(
        self, response: ProviderResponse, chunks: AsyncIterator[bytes], stream: StreamAssembler
    ) -> None:
        """Pass each piece on as it comes. The body is ended properly only when the answer is complete."""
        outlet, session, turn = self._outlet, self._session, self._turn
        # What a hook may change can't be passed on before it is whole.
        held: list[bytes] | None = [] if session.rewriter is not None and session.rewriter.sees_responses else None
        await outlet.start(response.status, response.headers)
        failure: ProviderError | None = None
        with self._heart.pulse(outlet, lambda: held is not None or stream.is_between_events) as pulse:
            try:
                async for piece in chunks:
                    session.note_first_byte(turn)
                    stream.feed(piece)
                    if stream.is_done and stream.is_complete:
                        # Before the program sees the end: it may exit on it, and is scored on this answer.
                        session.commit(turn, stream.completion())
                    if held is None:
                        await pulse.write(piece)
                    else:
                        held.append(piece)
                stream.finish()
            except ProviderError as error:
                failure = error
            if stream.is_complete:
                session.commit(turn, stream.completion())
                if held is None or await self._write_held(pulse, b"".join(held), stream):
                    await outlet.finish()
                return
        if failure is None:
            why = stream.error or "it ended without its terminal event"
            failure = ProviderError(
                f"provider stream incomplete: {why}", status=response.status, truncated=tells_overflow(why)
            )
        session.fail(turn, failure, partial=stream.completion(), text=stream.text)

    async def _write_held(self, pulse: Pulse, raw: bytes, stream: StreamAssembler) -> bool:
        """Pass on a stream that was held back for the task's hooks; returns whether they let it through."""
        pairs = await self._show_answer(stream.completion())
        if isinstance(pairs, Refusal):
            return False
        await pulse.write(REWRITES[self._dialect.route].put_stream(raw, pairs) if pairs else raw)
        return True

    def _hang_up(self) -> None:
        stream = self._stream
        if stream is None:
            self._session.hang_up(self._turn, partial=self._answer)
        elif stream.is_complete:
            # Some programs leave as soon as they have read the finish reason.
            self._session.commit(self._turn, stream.completion())
        else:
            self._session.hang_up(self._turn, partial=stream.completion(), text=stream.text)


def _check_rewritten(given: Sequence[Message], wanted: Sequence[Message], sent: Sequence[Message]) -> None:
    for old, new, now in zip(given, wanted, sent, strict=True):
        if new is not old and now == old:
            text = f"{old.content!r:.80}"
            raise TaskError(f"an intercept changed a tool result whose content can't be changed: {text}")


def _ignored(sampling: Sampling, dialect: Dialect) -> list[str]:
    """What the user asked for that the dialect has no place for."""
    names = [name for name in sorted(dialect.not_imposed) if getattr(sampling, name) is not None]
    return [f"sampling.{name} has no place in {dialect.answer}: not sent" for name in names]


def with_query(path: str, exchange: Exchange) -> str:
    """`path` with the query of the program's request."""
    return f"{path}?{exchange.query}" if exchange.query else path


async def refuse_turn(to: Exchange | Outlet, refusal: Refusal) -> None:
    """Tell a program that it gets no turn."""
    # 400 and no retry: SDKs ask again after 429 and 5xx, and would never notice that the rollout is over.
    code = "rollout_stopped" if refusal.is_stop else "rollout_failed"
    await to.refuse(400, redact(refusal.message), code=code, x_should_retry="false")


async def refuse_unanswered(to: Exchange | Outlet, error: ProviderError) -> None:
    """Tell a program that its provider gave no answer."""
    # The client has tried again as often as the user allows.
    await to.refuse(
        error.status or 502, redact(str(error)), type="provider_error", code="no_answer", x_should_retry="false"
    )
