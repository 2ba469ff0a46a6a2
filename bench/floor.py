"""The least that an interception in Python can do: find the caller, read, set the model, send on, read, note, answer.

No streams, retries, limits or errors: a yardstick, not a server. It tells of itself as `serving.py` does.
"""

import asyncio
import gc
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import uvloop
from serving import resident_kib


class Messages(asyncio.Protocol):
    """Takes whole messages that tell their length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < self._needed or (end := self._buffer.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._buffer[:end])
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        self._needed = end + 4 + length
        if len(self._buffer) >= self._needed:
            body = bytes(self._buffer[end + 4 : self._needed])
            del self._buffer[: self._needed]
            self._needed = 0
            self.take(head, body)

    def take(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError


class Upstream(Messages):
    answer: Callable[[bytes], None]

    def take(self, head: bytes, body: bytes) -> None:
        self.answer(body)


class Downstream(Messages):
    def __init__(self, provider: str, sessions: dict[bytes, list[Any]], idle: list[Upstream]) -> None:
        super().__init__()
        self._provider = urlsplit(provider)
        self._sessions = sessions
        self._idle = idle

    def take(self, head: bytes, body: bytes) -> None:
        session = self._sessions[head.partition(b"Bearer ")[2].partition(b"\r\n")[0]]
        request = json.loads(body)
        request["model"] = "bench"
        sent, said = json.dumps(request, ensure_ascii=False).encode(), request["messages"][-1]
        start = time.time()
        lines = f"POST {self._provider.path}/chat/completions HTTP/1.1\r\nhost: {self._provider.netloc}\r\n"
        lines += f"content-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n"

        def answer(body: bytes) -> None:
            completion = json.loads(body)
            session.append((said, completion["choices"][0]["message"], completion["usage"], start, time.time()))
            self._idle.append(upstream)
            reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            self.transport.write(reply % (len(body), body))

        async def connect() -> None:
            nonlocal upstream
            loop = asyncio.get_running_loop()
            _, upstream = await loop.create_connection(Upstream, self._provider.hostname, self._provider.port)
            send()

        def send() -> None:
            upstream.answer = answer
            upstream.transport.write(lines.encode() + sent)

        if self._idle:
            upstream = self._idle.pop()
            send()
        else:
            self._connecting = asyncio.create_task(connect())


async def main(provider: str, count: int) -> None:
    gc.collect()
    before = resident_kib()
    keys = [secrets.token_urlsafe(24) for _ in range(count)]
    sessions: dict[bytes, list[Any]] = {key.encode(): [] for key in keys}
    each = (resident_kib() - before) / count
    idle: list[Upstream] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Downstream(provider, sessions, idle), "127.0.0.1", 0, backlog=2048)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(keys, file)
        file.flush()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
        print(json.dumps({"url": url, "pid": os.getpid(), "keys": file.name, "session_kib": each}), flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
