"""One HTTP request and its response over ASGI, down to what this endpoint needs of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from anyio.abc import TaskGroup

from vfx.dialects.base import Dialect
from vfx.dialects.routes import CHAT

__all__ = ["BodyTooLargeError", "Exchange", "Receive", "Scope", "Send", "error_headers"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE = ("content-type", "application/json")


class BodyTooLargeError(Exception):
    """A request has more bytes than are allowed."""


class Exchange:
    """What a program asked, and the way back to it."""

    __slots__ = (
        "_receive",
        "_send",
        "dialect",
        "group",
        "header_lines",
        "headers",
        "is_started",
        "max_body_bytes",
        "method",
        "path",
        "query",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, group: TaskGroup) -> None:
        self._receive = receive
        self._send = send
        self.group = group
        """For tasks that last as long as the exchange."""
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
        pieces: list[bytes] = []
        num_bytes = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            num_bytes += len(pieces[-1])
            if max_bytes is not None and num_bytes > max_bytes:
                raise BodyTooLargeError
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def hung_up(self) -> None:
        """Wait until the program goes away. Only once the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def cancel_on_hang_up(self) -> None:
        """Cancel the exchange's group when the program goes away. Only once the body has been read."""
        await self.hung_up()
        self.group.cancel_scope.cancel()

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
