"""One HTTP request and its response over ASGI, down to what this endpoint needs of it."""

import io
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import anyio

from vfx.dialects.base import Dialect
from vfx.dialects.routes import CHAT

__all__ = ["HUNG_UP", "JSON_TYPE", "BodyTooLargeError", "Exchange", "Receive", "Scope", "Send", "error_headers"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HUNG_UP = "vfx.hung_up"
"""Under this name an ASGI scope holds what the server calls when a program goes away before it is served."""

JSON_TYPE = ("content-type", "application/json")


class BodyTooLargeError(Exception):
    """A request has more bytes than are allowed."""


class Exchange:
    """What a program asked, and the way back to it."""

    __slots__ = (
        "_is_gone",
        "_on_hang_up",
        "_receive",
        "_scope",
        "_send",
        "cancel_scope",
        "dialect",
        "header_lines",
        "headers",
        "is_dismissed",
        "is_started",
        "max_body_bytes",
        "method",
        "path",
        "query",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_gone = False
        self._on_hang_up: Callable[[], object] | None = None
        # Called by the server, since a task that waits for it would cost as much as the rest of a small exchange.
        scope[HUNG_UP] = self._hang_up
        self.cancel_scope = anyio.CancelScope()
        """The exchange runs in it."""
        self.is_dismissed = False
        """True when it was cancelled since its rollout has ended."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query = bytes(scope.get("query_string", b"")).decode("latin-1")
        """Without the question mark; "" when there is none."""
        self.header_lines: Sequence[tuple[bytes, bytes]] = scope["headers"]
        """As they came, names in lower case."""
        self.headers = dict(self.header_lines)
        self.dialect: Dialect = CHAT
        """What the program speaks; set when the path has told."""
        self.max_body_bytes: int | None = None
        """Bound on the body; None = unbounded."""
        self.is_started = False
        """True once the status has been sent."""

    async def read_body(self) -> bytes | None:
        """The whole body; None when the program went away before its end.

        Raises:
            BodyTooLargeError: It has more than `max_body_bytes`.
        """
        max_bytes = self.max_body_bytes
        announced = self.headers.get(b"content-length", b"")
        if max_bytes is not None and announced.isdigit() and int(announced) > max_bytes:
            raise BodyTooLargeError
        whole = io.BytesIO()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            # Written as they come: joining all at the end would hold up everyone else.
            whole.write(message.get("body", b""))
            if max_bytes is not None and whole.tell() > max_bytes:
                raise BodyTooLargeError
            if not message.get("more_body"):
                return whole.getvalue()

    def on_hang_up(self, action: Callable[[], object]) -> None:
        """Have `action` called when the program goes away, or at once if it has gone."""
        self._on_hang_up = action
        if self._is_gone:
            action()

    def _hang_up(self) -> None:
        self._is_gone = True
        if self._on_hang_up is not None:
            self._on_hang_up()

    def dismiss(self) -> None:
        """Cancel it: its rollout has ended."""
        self.is_dismissed = True
        self.cancel_scope.cancel()

    def end(self) -> None:
        """It is over: the server has nobody to call any more."""
        self._on_hang_up = None
        self._scope.pop(HUNG_UP, None)

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send status and headers."""
        self.is_started = True
        # As the client decoded them, so that other encodings than ASCII survive.
        lines = [(name.encode("latin-1"), value.encode("utf-8", "surrogateescape")) for name, value in headers]
        # Beyond these no HTTP library knows what to do.
        known = status if 200 <= status <= 599 else 502
        await self._send({"type": "http.response.start", "status": known, "headers": lines})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def finish(self, last: bytes = b"") -> None:
        """End the body properly. An exchange that never does leaves the program with a broken connection."""
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def reply(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = (JSON_TYPE,)) -> None:
        """Send a whole response."""
        await self.start(status, [*headers, ("content-length", str(len(body)))])
        await self.finish(body)

    async def refuse(
        self, status: int, message: str, *, type: str = "invalid_request_error", code: str | None = None, **headers: str
    ) -> None:
        """Send an error in the dialect's form; `headers` are named with underscores."""
        await self.reply(status, self.dialect.error_body(message, type=type, code=code), error_headers(headers))


def error_headers(named: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers of an error; names have underscores."""
    return [JSON_TYPE, *((name.replace("_", "-"), value) for name, value in named.items())]
