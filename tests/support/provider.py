"""A model provider that plays a script: HTTP/1.1 on a real loopback socket, down to chunk borders and resets."""

import json
import socket
import struct
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.support.replies import Reply, completion, stream

__all__ = ["Provider", "Reply", "Request", "completion", "scripted_provider", "stream"]


@dataclass(slots=True, eq=False)
class Request:
    """One request as it came."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Names in lower case; repeated ones are joined by commas."""
    body: bytes
    connection: int
    """Number of its connection, from 0."""
    arrived: float
    """By `time.monotonic`."""
    left: float | None = None
    """When the client went away before it had the whole reply; None = it did not."""
    gone: anyio.Event = field(default_factory=anyio.Event, repr=False)
    """Set with `left`."""

    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Request], Reply]


class Provider:
    """What the script has seen; the moment a test looks at it, nothing is in flight between two awaits."""

    def __init__(self, replies: Sequence[Reply], default: Reply | Answer, listener: socket.socket) -> None:
        self._replies = list(replies)
        self._default = default
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self._arrival = anyio.Event()
        self._connections = 0
        self._running = 0
        self.requests: list[Request] = []
        """In the order in which they arrived."""
        self.peak = 0
        """The most requests that were being answered at one time."""

    @property
    def base_url(self) -> str:
        """What an SDK is given."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def arrived(self, count: int = 1) -> None:
        """Wait until `count` requests in all have come."""
        while len(self.requests) < count:
            await self._arrival.wait()

    async def serve(self) -> None:
        async with anyio.create_task_group() as group:
            while True:
                await anyio.wait_readable(self._listener)
                with suppress(BlockingIOError):
                    while True:
                        group.start_soon(self._converse, self._listener.accept()[0], self._connections)
                        self._connections += 1

    async def _converse(self, peer: socket.socket, number: int) -> None:
        connection = _Connection(peer)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(connection.listen)
                while request := await connection.next_request(number):
                    if not await self._answer(connection, request):
                        break
                group.cancel_scope.cancel()
        finally:
            peer.close()

    async def _answer(self, connection: "_Connection", request: Request) -> bool:
        """Play one reply; returns whether the connection goes on."""
        self.requests.append(request)
        self._arrival.set()
        self._arrival = anyio.Event()
        chosen = self._replies.pop(0) if self._replies else self._default
        reply = chosen if isinstance(chosen, Reply) else chosen(request)
        self._running += 1
        self.peak = max(self.peak, self._running)
        is_whole = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(connection.cancel_on_end, group.cancel_scope)
                await connection.play(reply)
                is_whole = True
                group.cancel_scope.cancel()
        finally:
            self._running -= 1
        if not is_whole:
            request.left = time.monotonic()
            request.gone.set()
        is_last = "close" in (request.headers.get("connection"), reply.headers.get("Connection"))
        return is_whole and reply.ending == "normal" and not is_last


class _Connection:
    """One client's connection, read ahead so that its end is seen while a reply is under way."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer
        self._read = bytearray()
        self._news = anyio.Event()
        self._ended = anyio.Event()

    async def listen(self) -> None:
        try:
            while piece := await self._receive():
                self._read += piece
                self._tell()
        finally:
            self._ended.set()
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _receive(self) -> bytes:
        while True:
            try:
                return self._peer.recv(1 << 18)
            except BlockingIOError:
                await anyio.wait_readable(self._peer)
            except OSError:
                return b""

    async def cancel_on_end(self, scope: anyio.CancelScope) -> None:
        await self._ended.wait()
        scope.cancel()

    async def _until(self, is_there: Callable[[], bool]) -> bool:
        while not is_there():
            if self._ended.is_set():
                return False
            await self._news.wait()
        return True

    async def next_request(self, number: int) -> Request | None:
        """The next request; None when the client has closed."""
        if not await self._until(lambda: b"\r\n\r\n" in self._read):
            return None
        head, _, _ = bytes(self._read).partition(b"\r\n\r\n")
        del self._read[: len(head) + 4]
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        assert "transfer-encoding" not in headers, "this provider reads only bodies with a Content-Length"
        size = int(headers.get("content-length", 0))
        if not await self._until(lambda: len(self._read) >= size):
            return None
        body = bytes(self._read[:size])
        del self._read[:size]
        return Request(method, path, headers, body, number, time.monotonic())

    async def play(self, reply: Reply) -> None:
        await anyio.sleep(reply.delay)
        if reply.status is not None:
            await self._send(_head(reply) + (b"" if reply.chunks is not None else reply.body))
        delays = reply.chunk_delay if isinstance(reply.chunk_delay, Sequence) else (reply.chunk_delay,) * 10_000
        for number, chunk in enumerate(reply.chunks or ()):
            await anyio.sleep(delays[number] if number < len(delays) else 0)
            await self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if reply.ending == "hang":
            await anyio.sleep_forever()
        elif reply.ending == "reset":
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif reply.ending == "normal" and reply.chunks is not None:
            await self._send(b"0\r\n\r\n")

    async def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._peer.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._peer)
            except OSError:  # The client is gone; the reader sees it too and ends this reply.
                await anyio.sleep_forever()


def _head(reply: Reply) -> bytes:
    headers = {"Content-Type": "application/json", **reply.headers}
    if reply.chunks is not None:
        headers["Transfer-Encoding"] = "chunked"
    else:
        missing = 0 if reply.ending == "normal" else 1
        headers.setdefault("Content-Length", str(len(reply.body) + missing))
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@asynccontextmanager
async def scripted_provider(*replies: Reply, default: Reply | Answer | None = None) -> AsyncGenerator[Provider]:
    """Serve `replies` in order of arrival, then `default` (a friendly completion unless given)."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        provider = Provider(replies, completion() if default is None else default, listener)
        async with anyio.create_task_group() as group:
            group.start_soon(provider.serve)
            yield provider
            group.cancel_scope.cancel()
