"""A chat-completions endpoint without latency, as thin as Python allows: what a benchmark measures should not be this.

Prints its port, serves until stdin closes.
"""

import asyncio
import json
import socket
import sys

import uvloop

COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "bench",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "It is 7."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
}


def response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


ANSWER = response(json.dumps(COMPLETION).encode())


class Connection(asyncio.Protocol):
    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = 0
            for line in bytes(self._buffer[:end]).lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            if len(self._buffer) < end + 4 + length:
                return
            del self._buffer[: end + 4 + length]
            if self._latency:
                asyncio.get_running_loop().call_later(self._latency, self._transport.write, ANSWER)
            else:
                self._transport.write(ANSWER)


async def main(latency: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(latency), "127.0.0.1", 0, family=socket.AF_INET, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
