"""Who may call the endpoint and what it serves: one plain ASGI callable for all rollouts of a server.

The order in which a request is refused tells nothing about rollouts: foreign hosts and origins (403), unknown paths
(404), methods (405) and content types (415) come first, whatever the secret; then every wrong secret gets one and the
same 401.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hmac import compare_digest

import anyio

from vfx.clients.base import Client
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS
from vfx.errors import InterceptionError, RolloutError, attributed
from vfx.interception.access import deny, digest, given_secret, is_json
from vfx.interception.exchange import BodyTooLargeError, Exchange, Receive, Scope, Send
from vfx.interception.pulse import Heart
from vfx.interception.relay import Relay
from vfx.interception.session import Session
from vfx.interception.state import STATE_METHODS, StateRoutes
from vfx.redaction import redact

__all__ = ["App"]

log = logging.getLogger(__name__)

COUNT_TOKENS = f"{ANTHROPIC.route}/count_tokens"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Action = Callable[[Exchange, Session], Awaitable[None]]


@dataclass(slots=True)
class _Place:
    """A rollout that this server serves."""

    session: Session
    running: set[Exchange] = field(default_factory=set[Exchange])
    """Its requests that are being served."""
    emptied: anyio.Event | None = None
    """Set when none is left; None as long as the rollout has not ended."""


class App:
    """Routes requests of rollouts to the relay."""

    def __init__(self, client: Client, *, keep_alive: float, max_body_bytes: int | None = None) -> None:
        """See the class.

        Args:
            client: Where calls go.
            keep_alive: Seconds of a provider's silence after which a stream gets a comment.
            max_body_bytes: Bound on a request; None = unbounded.
        """
        self.heart = Heart(keep_alive)
        """Must be beating for streams to be kept alive."""
        relay = Relay(client, self.heart)
        self._max_body_bytes = max_body_bytes
        self._actions: dict[str, tuple[str, Action]] = {
            "/v1/models": ("GET", relay.list_models),
        }
        self._actions[COUNT_TOKENS] = ("POST", relay.count_tokens)
        self._actions |= dict.fromkeys(DIALECTS, ("POST", relay.complete))
        self._places: dict[bytes, _Place] = {}
        self._states = StateRoutes()
        self._running: set[anyio.CancelScope] = set()
        self.hosts = set(LOOPBACK)
        """Names under which programs reach this server."""

    def open(self, session: Session) -> None:
        """Serve the rollout of `session` from now on."""
        self._places[digest(session.api_key.encode())] = _Place(session)
        self._states.open(session)

    async def close(self, session: Session) -> None:
        """Serve it no longer: its secrets are dead, and its requests under way are cancelled before this returns."""
        self._states.close(session)
        place = self._places.pop(digest(session.api_key.encode()))
        if place.running:
            place.emptied = anyio.Event()
            for exchange in place.running:
                exchange.dismiss()
            await place.emptied.wait()

    def cancel(self) -> None:
        """Cancel every request under way."""
        for scope in self._running:
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = Exchange(scope, receive, send)
        exchange.dialect = _dialect(exchange)
        exchange.max_body_bytes = self._max_body_bytes
        try:
            with attributed(InterceptionError, "interception"), exchange.cancel_scope as running:
                self._running.add(running)
                await self._serve(exchange)
            if exchange.is_dismissed and not exchange.is_started:
                await deny(exchange)
        except RolloutError as error:
            log.error("a request failed here: %s", error, exc_info=error)  # noqa: TRY400 - the cause is chained
            if not exchange.is_started:
                await exchange.refuse(500, redact(str(error)), type="server_error", x_should_retry="false")
        finally:
            self._running.discard(exchange.cancel_scope)
            exchange.end()

    async def _serve(self, exchange: Exchange) -> None:
        if not self._is_from_here(exchange):
            await exchange.refuse(403, "this host or origin may not call this endpoint")
        elif exchange.path == "/health":
            await self._tell_health(exchange)
        elif exchange.path in STATE_METHODS:
            await self._states.serve(exchange)
        elif exchange.path not in self._actions:
            await exchange.refuse(404, "no such path", code="not_found")
        elif exchange.method != (method := self._actions[exchange.path][0]):
            await exchange.refuse(405, f"this path takes {method} only", allow=method)
        elif method == "POST" and not is_json(exchange):
            await exchange.refuse(415, "the content type must be application/json")
        elif (place := self._authenticate(exchange)) is None:
            await deny(exchange)
        else:
            await self._act(exchange, place)

    async def _tell_health(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            await exchange.reply(200, b'{"status":"ok"}')
        else:
            await exchange.refuse(405, "this path takes GET only", allow="GET")

    async def _act(self, exchange: Exchange, place: _Place) -> None:
        action = self._actions[exchange.path][1]
        place.running.add(exchange)
        try:
            await action(exchange, place.session)
        except BodyTooLargeError:
            await _refuse_body(exchange, place.session)
        finally:
            place.running.discard(exchange)
            if not place.running and place.emptied is not None:
                place.emptied.set()

    def _is_from_here(self, exchange: Exchange) -> bool:
        """True unless a web page or a rebound name leads here, which a browser would follow with a user's rights."""
        origin = exchange.headers.get(b"origin")
        if origin is not None and _hostname(origin.decode("latin-1").partition("://")[2]) not in LOOPBACK:
            return False
        return _hostname(exchange.headers.get(b"host", b"").decode("latin-1")) in self.hosts

    def _authenticate(self, exchange: Exchange) -> _Place | None:
        secret = given_secret(exchange)
        place = self._places.get(digest(secret))
        if place is None or not compare_digest(secret, place.session.api_key.encode()):
            return None
        return place


def _dialect(exchange: Exchange) -> Dialect:
    """What the program speaks, which decides how it is told of errors."""
    is_anthropic = exchange.path == COUNT_TOKENS or b"anthropic-version" in exchange.headers
    return DIALECTS.get(exchange.path, ANTHROPIC if is_anthropic else CHAT)


def _hostname(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


async def _refuse_body(exchange: Exchange, session: Session) -> None:
    text = f"the request has more than {exchange.max_body_bytes} bytes (--interception.max-body-bytes)"
    session.turn_away(InterceptionError(text))
    await exchange.refuse(413, text, code="request_too_large", x_should_retry="false")
