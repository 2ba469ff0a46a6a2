"""A chat-completions endpoint as thin as Python allows: what a benchmark measures should not be this.

Prints its port, serves until stdin closes. It never parses a request, it looks for the stream flag by its bytes: a
large body costs about what a small one does. Arguments: seconds until an answer, seconds between the events of a
stream (0: all at once), how many events a stream has, and the bytes of an answer to a request of more than 1 MiB.
"""

import asyncio
import json
import socket
import sys
from typing import Any

import uvloop

LARGE_REQUEST = 1 << 20
FLAG_WITHIN = 1 << 12
"""Bytes at the start and at the end of a body that may hold the flag."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}


def answer(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    common = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "bench"}
    body = json.dumps({**common, "choices": [choice], "usage": USAGE}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def event(delta: dict[str, str], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    return chunk(json.dumps({**common, "choices": [choice], **more}))


def chunk(data: str) -> bytes:
    line = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(line), line)


class Script:
    """What is answered."""

    def __init__(self, latency: float, gap: float, events: int, large_answer: int) -> None:
        self.latency = latency
        self.gap = gap
        self.answer = answer("It is 7.")
        self.large_answer = answer("y" * large_answer)
        self.events = [STREAM_HEAD + event({"role": "assistant"})] + [event({"content": "word "})] * (events - 2)
        self.events += [event({}, "stop", usage=USAGE) + chunk("[DONE]") + b"0\r\n\r\n"]
        self.stream = b"".join(self.events)


class Connection(asyncio.Protocol):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._buffer = bytearray()
        self._needed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= self._needed and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            self._needed = end + 4 + length
            if len(self._buffer) < self._needed:
                return
            is_stream = any(
                self._buffer.find(flag, start, start + FLAG_WITHIN) >= 0
                for flag in (b'"stream": true', b'"stream":true')
                for start in (end, max(end, self._needed - FLAG_WITHIN))
            )
            del self._buffer[: self._needed]
            self._needed = 0
            self._reply(length, is_stream=is_stream)

    def _reply(self, length: int, *, is_stream: bool) -> None:
        loop, write, script = asyncio.get_running_loop(), self._transport.write, self._script
        if is_stream and script.gap:
            for number, piece in enumerate(script.events):
                loop.call_later(script.latency + number * script.gap, write, piece)
            return
        whole = script.stream if is_stream else script.large_answer if length > LARGE_REQUEST else script.answer
        if script.latency:
            loop.call_later(script.latency, write, whole)
        else:
            write(whole)


async def main(latency: float = 0.0, gap: float = 0.0, events: int = 10, large_answer: int = 8) -> None:
    loop, script = asyncio.get_running_loop(), Script(latency, gap, events, large_answer)
    server = await loop.create_server(lambda: Connection(script), "127.0.0.1", 0, family=socket.AF_INET, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    given = sys.argv[1:]
    uvloop.run(main(*map(float, given[:2]), *map(int, given[2:])))
