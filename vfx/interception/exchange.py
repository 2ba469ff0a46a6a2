"""One HTTP request and its response over ASGI, down to what this endpoint needs of it."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from anyio.abc import TaskGroup

from vfx.dialects.chat import error_body

__all__ = ["Exchange", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE = ("content-type", "application/json")


class Exchange:
    """What a program asked, and the way back to it."""

    __slots__ = ("_receive", "_send", "group", "header_lines", "headers", "is_started", "method", "path")

    def __init__(self, scope: Scope, receive: Receive, send: Send, group: TaskGroup) -> None:
        self._receive = receive
        self._send = send
        self.group = group
        """For tasks that last as long as the exchange."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.header_lines: Sequence[tuple[bytes, bytes]] = scope["headers"]
        """As they came, names in lower case."""
        self.headers = dict(self.header_lines)
        self.is_started = False
        """True once the status has been sent."""

    async def read_body(self) -> bytes | None:
        """The whole body; None when the program went away before its end."""
        pieces: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def cancel_on_hang_up(self) -> None:
        """Cancel the exchange's group when the program goes away. Only once the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
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
        lines = [JSON_TYPE, *((name.replace("_", "-"), value) for name, value in headers.items())]
        await self.reply(status, error_body(message, type=type, code=code), lines)
