"""Where a program's requests go: a turn of its own, an earlier one that it asks for again, or just the provider."""

import time
from dataclasses import dataclass
from functools import partial

from vfx.clients.base import Client, ProviderRequest
from vfx.dialects.base import Dialect
from vfx.errors import ProviderError
from vfx.interception.call import Call, ReadRequest, refuse_turn, refuse_unanswered, with_query
from vfx.interception.document import LARGE_BODY, Document, Listing, off_the_loop
from vfx.interception.exchange import Exchange
from vfx.interception.headers import passing
from vfx.interception.outlet import Outlet
from vfx.interception.pulse import Heart
from vfx.interception.retries import KeyReusedError, Mark, digest_of
from vfx.interception.session import Refusal, Session, Turn
from vfx.messages import Message

__all__ = ["GRACE_S", "Relay", "read_prompt"]

GRACE_S = 10.0
"""How long a call that its program has left goes on, if another attempt would be recognised: SDKs wait up to 8 s."""


@dataclass(frozen=True, slots=True)
class _Ongoing:
    """A call that may be asked for again."""

    outlet: Outlet
    turn: Turn


class Relay:
    """Passes calls on to one client."""

    def __init__(self, client: Client, heart: Heart) -> None:
        self._client = client
        self._heart = heart

    async def list_models(self, exchange: Exchange, session: Session) -> None:
        """Pass on a listing of the provider's models; never a turn, whatever `session` is at."""
        path = with_query("models", exchange)
        await self._pass(exchange, ProviderRequest(path, b"", passing(exchange), method="GET"))

    async def count_tokens(self, exchange: Exchange, session: Session) -> None:
        """Pass on a question for the size of a prompt, for the model that is evaluated; never a turn."""
        raw = await exchange.read_body()
        if raw is None:
            return
        exchange.on_hang_up(exchange.cancel_scope.cancel)
        try:
            document = await off_the_loop(partial(Document, raw), len(raw))
        except ValueError as error:
            await exchange.refuse(400, f"the request can't be read: {error}")
            return
        imposed = {**document.body, "model": session.model}
        sent = await off_the_loop(partial(document.replaced, imposed), len(raw))
        path = with_query(f"{exchange.dialect.path}/count_tokens", exchange)
        await self._pass(exchange, ProviderRequest(path, sent, passing(exchange)))

    async def _pass(self, exchange: Exchange, request: ProviderRequest) -> None:
        try:
            async with self._client.send(request) as response:
                await exchange.reply(response.status, response.body, response.headers)
        except ProviderError as error:
            await refuse_unanswered(exchange, error)

    async def complete(self, exchange: Exchange, session: Session) -> None:
        """Serve one turn in the dialect that the program speaks, streamed or not."""
        raw = await exchange.read_body()
        if raw is None:
            return
        try:
            read = await off_the_loop(partial(_read_request, exchange, session, raw), len(raw))
        except ValueError as error:
            await exchange.refuse(400, f"the request can't be read: {error}")
            return
        # The document has it, too.
        del raw
        mark = Mark.of(exchange.headers)
        try:
            earlier = session.retries.find(mark, read.digest, time.monotonic())
        except KeyReusedError:
            text = "this idempotency key came before with another body: use a new key for another request"
            await exchange.refuse(422, text, code="idempotency_key_reused", x_should_retry="false")
            return
        if earlier is not None:
            exchange.on_hang_up(exchange.cancel_scope.cancel)
            if await self._answer_again(exchange, session, earlier.call):
                return
        await self._answer(exchange, session, mark, read)

    async def _answer_again(self, exchange: Exchange, session: Session, ongoing: _Ongoing) -> bool:
        """Give the answer of an earlier attempt; returns whether there was any."""
        refusal = session.resume(ongoing.turn)
        if refusal is not None:
            await refuse_turn(exchange, refusal)
            return True
        try:
            await ongoing.outlet.follow(exchange)
        finally:
            if not ongoing.outlet.is_wanted:
                session.suspend(ongoing.turn)
        return exchange.is_started

    async def _answer(self, exchange: Exchange, session: Session, mark: Mark, read: ReadRequest) -> None:
        turn = session.admit()
        if isinstance(turn, Refusal):
            await refuse_turn(exchange, turn)
            return
        outlet = Outlet(exchange, grace=GRACE_S if mark.is_announced and not read.is_stream else 0.0)
        attempt = session.retries.add(mark, read.digest, _Ongoing(outlet, turn))
        exchange.on_hang_up(partial(_leave, session, attempt.call))
        try:
            await Call(self._client, self._heart, exchange, outlet, session, turn).run(read)
        finally:
            outlet.end()
            # The turn stays for as long as it may be asked for again; what it was asked does not.
            turn.prompt, turn.tools = (), None
            is_served = turn.is_committed and outlet.is_complete
            session.retries.end(attempt, time.monotonic(), is_served=is_served, size=outlet.size)


def _leave(session: Session, ongoing: _Ongoing) -> None:
    """The program that asked first has gone."""
    ongoing.outlet.leave()
    if not ongoing.outlet.is_wanted:
        session.suspend(ongoing.turn)


def _read_request(exchange: Exchange, session: Session, raw: bytes) -> ReadRequest:
    document, prompt = read_prompt(exchange.dialect, raw, session)
    if len(raw) > LARGE_BODY:
        session.trace.graph.prepare(prompt)
    return ReadRequest(document, prompt, digest_of(exchange.path, raw), len(raw))


def read_prompt(dialect: Dialect, raw: bytes, session: Session) -> tuple[Document, list[Message]]:
    """A request and its messages, of which those that the rollout has sent before are not read again.

    Raises:
        ValueError: It is not JSON, or holds something that is no message; says where.
    """
    name = dialect.independent
    if name is None or (session.rewriter is not None and session.rewriter.sees_requests):
        document = Document(raw)
        return document, dialect.read_prompt(dialect.resolve(document.body, session.kept_items))
    listing = Listing(name, session.prompts)
    document = Document(raw, listing)
    if listing.items is None:
        return document, dialect.read_prompt(document.body)
    try:
        opening = dialect.read_prompt({**document.body, name: []})
        new = [(end, dialect.read_prompt({name: [item]})) for end, item in listing.items]
    except ValueError:
        # Reads it as a whole, so that the error tells the right place.
        dialect.read_prompt(Document(raw).body)
        raise
    return document, opening + session.prompts.extend(listing.text, listing.start, listing.known, new)
