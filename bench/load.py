"""Sends calls to one endpoint from a process of its own, and tells as JSON what they cost the process that serves it.

The callers are raw connections that ask again as soon as they have an answer, each request with the next key; with
`--turns` one caller holds one conversation, of which every request repeats all that was said before. CPU is that of
`--pid`, all its threads, in nanoseconds from the scheduler: no thread that ends is lost, since none ends during a load.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

WARM_UP = 3
"""Calls of each caller before those that are counted: its connections are open by then."""


def cpu_seconds(pid: int) -> float:
    """CPU of a process so far."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


def body(messages: list[dict[str, str]], *, stream: bool) -> bytes:
    request: dict[str, Any] = {"model": "bench", "messages": messages}
    if stream:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(request).encode()


def message(url: str, key: str, content: bytes) -> bytes:
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\naccept: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


Feed = Callable[[bytes], bytes | None]


class Caller(asyncio.Protocol):
    """One connection: sends what `feed` gives as soon as the last answer is whole, until that is None."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None
        self._first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def run(self, feed: Feed, note: Callable[[float, float], None]) -> "asyncio.Future[None]":
        self._feed, self._note = feed, note
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next(b"")
        return self._ended

    def _next(self, answer: bytes) -> None:
        request = self._feed(answer)
        if request is None:
            self._ended.set_result(None)
            return
        self._sent = time.perf_counter()
        self._first = 0.0
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._length is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end]).lower()
            assert b" 200 " in head[:15], bytes(self._buffer[:600])
            _, has_length, length = head.partition(b"content-length:")
            self._length = end + 4 + int(length.partition(b"\r\n")[0]) if has_length else -1
        if not self._first and (self._length > 0 or b"data: " in self._buffer):
            self._first = time.perf_counter()
        if self._buffer.endswith(b"0\r\n\r\n") if self._length < 0 else len(self._buffer) >= self._length:
            now = time.perf_counter()
            self._note(now - self._sent, self._first - self._sent)
            answer = bytes(self._buffer)
            self._buffer.clear()
            self._length = None
            self._next(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionResetError("closed in the middle of a call"))


async def connected(url: str, count: int) -> list[Caller]:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Caller, parts.hostname, parts.port))[1] for _ in range(count)]


async def flat(args: argparse.Namespace, keys: list[str]) -> dict[str, float]:
    """Equal calls of many callers."""
    text = "x" * max(1, args.bytes - len(body([{"role": "user", "content": ""}], stream=args.stream)))
    content = body([{"role": "user", "content": text}], stream=args.stream)
    key = cycle(keys)
    taken: list[float] = []
    firsts: list[float] = []

    def feed(count: int) -> Feed:
        left = iter(range(count))
        return lambda _: None if next(left, None) is None else message(args.url, next(key), content)

    def note(whole: float, first: float) -> None:
        taken.append(whole)
        firsts.append(first)

    async def begin(caller: Caller, number: int) -> None:
        await asyncio.sleep(args.spread * number / args.callers)
        await caller.run(counted, note)

    callers = await connected(args.url, args.callers)
    await asyncio.gather(*(caller.run(feed(WARM_UP), note) for caller in callers))
    slowest_warm_up = max(taken)
    taken.clear()
    firsts.clear()
    began, cpu = time.perf_counter(), cpu_seconds(args.pid)
    counted = feed(args.calls)
    await asyncio.gather(*(begin(caller, number) for number, caller in enumerate(callers)))
    wall, cpu = time.perf_counter() - began, cpu_seconds(args.pid) - cpu
    taken.sort()
    firsts.sort()
    return {
        "per_s": args.calls / wall,
        "cpu_ms": cpu / args.calls * 1000,
        "median_ms": taken[len(taken) // 2] * 1000,
        "p99_ms": taken[int(len(taken) * 0.99)] * 1000,
        "longest_ms": taken[-1] * 1000,
        "first_ms": firsts[len(firsts) // 2] * 1000,
        "warm_up_longest_ms": slowest_warm_up * 1000,
    }


async def conversation(args: argparse.Namespace, keys: list[str]) -> dict[str, float]:
    """CPU milliseconds of turns of one conversation, by their number: the median of five that stand together."""
    said: list[dict[str, str]] = []
    costs: list[float] = []

    def feed(answer: bytes) -> bytes | None:
        costs.append(cpu_seconds(args.pid))
        if answer:
            reply = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]
            said.append({"role": "assistant", "content": reply["content"]})
        if len(costs) > args.turns:
            return None
        said.append({"role": "user", "content": f"{len(costs)} " + "y" * args.bytes})
        return message(args.url, keys[0], body(said, stream=args.stream))

    (caller,) = await connected(args.url, 1)
    await caller.run(feed, lambda whole, first: None)
    spent = [(after - before) * 1000 for before, after in pairwise(costs)]
    turns = {turn for turn in (1, 10, 50, 100, 200, 400, 800) if turn < args.turns} | {args.turns}
    return {str(turn): sorted(spent[max(0, turn - 5) : turn])[min(2, (turn - 1) // 2)] for turn in sorted(turns)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--keys", type=Path, help="a JSON list of secrets, taken in turn")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=1000, help="of a request; of a turn with --turns")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--spread", type=float, default=0.0, help="seconds over which the callers begin")
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    keys = json.loads(args.keys.read_text()) if args.keys else ["none"]
    print(json.dumps(uvloop.run(conversation(args, keys) if args.turns else flat(args, keys))))


if __name__ == "__main__":
    main()
