"""`-c auto` beside fixed numbers of rollouts, against providers with a limit that nobody told vfx.

Three kinds: one refuses requests above so many in flight, one refuses those above so many a second and says when to
come back, one takes all and lets them queue. Prints a table for each: seconds, refusals, requests in flight at most.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from running import evaluation

FIXED = (4, 8, 16, 32, 64, 128)
HEAD = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"


@dataclass(frozen=True)
class Limit:
    """A provider."""

    kind: Literal["flight", "rate", "queue"]
    most: int
    """Requests in flight, requests a second, or requests that are answered at a time."""
    latency: float
    """Mean seconds of one answer."""
    seed: int = 0

    def __str__(self) -> str:
        words = {
            "flight": f"429 above {self.most} requests in flight",
            "rate": f"429 with Retry-After above {self.most} requests a second",
            "queue": f"no 429, {self.most} requests at a time and a queue",
        }
        return f"{words[self.kind]}, {self.latency:g} s an answer"


class Provider:
    """Answers as its limit allows, and counts."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._chance = random.Random(limit.seed)  # noqa: S311
        self._window, self._in_window = 0.0, 0
        self._queue: deque[asyncio.Transport] = deque()
        self._served = 0
        self.refused = self.flying = self.peak = 0
        body = {
            "id": "c",
            "object": "chat.completion",
            "model": "bench",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "7"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
        self._body = json.dumps(body).encode()

    def take(self, transport: asyncio.Transport) -> None:
        limit, now = self._limit, time.monotonic()
        if limit.kind == "rate":
            if now - self._window >= 1:
                self._window, self._in_window = now, 0
            if self._in_window >= limit.most:
                left = 1 - (now - self._window)
                self._refuse(transport, b"retry-after: 1\r\nretry-after-ms: %d\r\n" % (1000 * left + 1))
                return
            self._in_window += 1
        if limit.kind == "flight" and self.flying >= limit.most:
            self._refuse(transport, b"")
            return
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        if limit.kind == "queue" and self._served >= limit.most:
            self._queue.append(transport)
        else:
            self._serve(transport)

    def _refuse(self, transport: asyncio.Transport, headers: bytes) -> None:
        self.refused += 1
        body = b'{"error":{"message":"slow down"}}'
        transport.write(HEAD % (429, b"Too Many Requests", len(body), headers) + body)

    def _serve(self, transport: asyncio.Transport) -> None:
        self._served += 1
        seconds = self._limit.latency * self._chance.uniform(0.6, 1.4)
        asyncio.get_running_loop().call_later(seconds, self._answer, transport)

    def _answer(self, transport: asyncio.Transport) -> None:
        self.flying -= 1
        self._served -= 1
        transport.write(HEAD % (200, b"OK", len(self._body), b"") + self._body)
        if self._queue:
            self._serve(self._queue.popleft())


class Connection(asyncio.Protocol):
    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._buffer) >= end + 4 + length:
            del self._buffer[: end + 4 + length]
            self._provider.take(self._transport)


async def serve(limit: Limit) -> None:
    provider = Provider(limit)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(provider), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({"refused": provider.refused, "peak": provider.peak}), flush=True)


@contextmanager
def running(limit: Limit, found: dict[str, Any]) -> Generator[str]:
    """The provider in a process of its own; gives its base URL, and afterwards what it counted."""
    program = [sys.executable, __file__, "--serve", json.dumps(asdict(limit))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
        child.stdin.close()
        found |= json.loads(child.stdout.readline())


@dataclass(frozen=True)
class Run:
    """What one run took."""

    concurrent: str
    seconds: float
    refused: int
    peak: int
    errored: int
    final: int


def run(limit: Limit, concurrent: str, count: int, folder: str, log: Path | None = None) -> Run:
    found: dict[str, Any] = {}
    with running(limit, found) as url:
        more: dict[str, object] = {"client.max-retries": 20, "log-level": "debug"}
        argv = [sys.executable, "-m", *evaluation(url, count, concurrent, folder, **more)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"-c {concurrent}: exit {done.returncode}\n{done.stderr[-2000:]}{done.stdout[-300:]}")
    summary = json.loads(done.stdout)
    if log is not None:
        lines = (Path(summary["run_dir"]) / "run.log").read_text().splitlines()
        log.write_text("\n".join(line for line in lines if "at a time" in line) + "\n")
    return Run(
        concurrent,
        summary["seconds"],
        found["refused"],
        found["peak"],
        summary["errored"],
        summary["concurrency"]["final"],
    )


def compare(limit: Limit, count: int, fixed: list[str], repeat: int, folder: str, log: Path | None) -> None:
    print(f"\n{limit}; {count} rollouts of one call")
    print(f"{'-c':>6}{'s':>8}{'429s':>7}{'in flight at most':>19}{'errored':>9}{'limit at the end':>18}")
    runs = [run(limit, concurrent, count, folder) for concurrent in fixed]
    seeds = range(limit.seed, limit.seed + repeat)
    autos = [run(replace(limit, seed=seed), "auto", count, folder, log) for seed in seeds]
    for one in [*runs, *autos]:
        print(
            f"{one.concurrent:>6}{one.seconds:>8.1f}{one.refused:>7}{one.peak:>19}{one.errored:>9}{one.final:>18}",
            flush=True,
        )
    if runs:
        best = min(runs, key=lambda one: one.seconds)
        shares = ", ".join(f"{one.seconds / best.seconds - 1:+.0%}" for one in autos)
        print(f"auto beside the best fixed one, {best.concurrent}: {shares} in time", flush=True)


LIMITS = (Limit("flight", 24, 0.3), Limit("rate", 60, 0.25), Limit("queue", 24, 0.3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="rollouts")
    parser.add_argument("-c", nargs="*", default=[str(number) for number in FIXED], help="fixed numbers")
    parser.add_argument("--kinds", nargs="+", default=["flight", "rate", "queue"])
    parser.add_argument("--most", type=int, help="another limit than the built-in ones")
    parser.add_argument("--latency", type=float, help="another latency, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3, help="runs of auto, with a seed each")
    parser.add_argument("--log", type=Path, help="where the decisions of the last run of auto go")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(Limit(**json.loads(args.serve))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for limit in LIMITS:
            if limit.kind in args.kinds:
                most, latency = args.most or limit.most, args.latency or limit.latency
                chosen = Limit(limit.kind, most, latency, args.seed)
                compare(chosen, args.n, args.c, args.repeat, folder, args.log)


if __name__ == "__main__":
    main()
