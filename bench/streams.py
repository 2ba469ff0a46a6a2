"""An endpoint that streams answers at the pace of a model, as thin as Python allows.

Prints its port, serves until stdin closes. Arguments: seconds until the first event, seconds between events, and how
many events an answer has.
"""

import asyncio
import json
import socket
import sys

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(event: str) -> bytes:
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": reason}
    return chunk(json.dumps({"id": "c", "object": "chat.completion.chunk", "model": "bench", "choices": [choice]}))


class Connection(asyncio.Protocol):
    def __init__(self, first: float, gap: float, count: int) -> None:
        self._delays = [first, *[gap] * (count - 1)]
        self._pieces = [delta("word ")] * (count - 1)
        self._last = delta("", "stop") + chunk("[DONE]") + b"0\r\n\r\n"
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._buffer) < end + 4 + length:
            return
        del self._buffer[: end + 4 + length]
        loop, at = asyncio.get_running_loop(), 0.0
        pieces = [HEAD + self._pieces[0], *self._pieces[1:], self._last]
        for delay, piece in zip(self._delays, pieces, strict=True):
            at += delay
            loop.call_later(at, self._transport.write, piece)


async def main(first: float, gap: float, count: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(first, gap, count), "127.0.0.1", 0, family=socket.AF_INET, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
