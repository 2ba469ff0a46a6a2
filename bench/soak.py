"""Many conversations through the endpoint while faults are injected, and what is left of them afterwards.

Agents and provider are processes of their own; descriptors, tasks, connections and memory are those of the endpoint's.
Ends with exit code 1 when a turn is missing or doubled, or when something is not given back.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from vfx.clients.base import Client, HttpSettings, create_client
from vfx.interception.server import Server
from vfx.interception.session import Session
from vfx.messages import Sampling
from vfx.trace.record import Agent, TaskRef, Trace

FAULTS = {"429": 0.01, "500": 0.01, "503": 0.005, "refused": 0.01, "cut": 0.01, "slow": 0.005}
ATTEMPTS = 40
PAUSE_S = 0.05
LISTENING = 1
"""Sockets of an endpoint that nobody is connected to."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n"


# The provider: says what it was told, whole or as a stream.


def chunk(fields: dict[str, Any] | str) -> bytes:
    text = fields if isinstance(fields, str) else json.dumps({"id": "c", "model": "soak", **fields})
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(body: dict[str, Any]) -> bytes:
    text = f"echo {body['messages'][-1]['content']}"
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        whole = json.dumps({"id": "c", "model": "soak", "choices": [choice], "usage": usage}).encode()
        return HEAD % (b"application/json", b"content-length: %d\r\n" % len(whole)) + whole
    pieces: list[Any] = [
        {"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in text.partition(" ")
    ]
    pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = b"".join(chunk({"choices": [piece]}) for piece in pieces) + chunk({"choices": [], "usage": usage})
    return HEAD % (b"text/event-stream", b"transfer-encoding: chunked\r\n") + chunks + chunk("[DONE]") + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
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
            body = json.loads(self._buffer[end + 4 : end + 4 + length])
            del self._buffer[: end + 4 + length]
            self._transport.write(answer(body))


async def provide() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


# The agents: each has one conversation, and asks again, marked, until it has an answer.


async def converse(http: aiohttp.ClientSession, url: str, key: str, name: str, turns: int) -> int:
    """Returns how often it was failed."""
    chance, failures = random.Random(name), 0  # noqa: S311
    messages: list[dict[str, str]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{name}.{turn}"})
        body = json.dumps({"model": "m", "messages": messages, "stream": chance.random() < 0.5}).encode()
        for attempt in range(ATTEMPTS):
            headers = {
                "Authorization": f"Bearer {key}",
                "Content-Type": "application/json",
                "x-stainless-retry-count": str(attempt),
            }
            try:
                async with http.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                    text = await response.text()
                    if response.status == 200:
                        break
            except aiohttp.ClientError:
                pass
            failures += 1
            await asyncio.sleep(PAUSE_S * chance.random())
        else:
            raise SystemExit(f"{name}.{turn} was never answered")
        messages.append({"role": "assistant", "content": read_answer(text)})
        if messages[-1]["content"] != f"echo {name}.{turn}":
            raise SystemExit(f"{name}.{turn} got {messages[-1]['content']!r}")
    return failures


def read_answer(text: str) -> str:
    if text.startswith("{"):
        return json.loads(text)["choices"][0]["message"]["content"]
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


async def act(keys: list[str], url: str, turns: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        work = [converse(http, url, key, str(number), turns) for number, key in enumerate(keys)]
        print(sum(await asyncio.gather(*work)), flush=True)


# The endpoint, and what it has left.


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    descriptors: int
    sockets: int
    tasks: int
    mib: float

    def __str__(self) -> str:
        return f"{self.descriptors:>12}{self.sockets:>9}{self.tasks:>7}{self.mib:>9.1f}"


def held() -> Held:
    gc.collect()
    links = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if is_open(number)]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    sockets = sum(link.startswith("socket:") for link in links)
    return Held(len(links), sockets, len(asyncio.all_tasks()), mib)


def is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def new_session(number: int) -> Session:
    task = TaskRef(type="Soak", key=str(number), occurrence=0, data={})
    trace = Trace(id=str(number), task=task, rollout=0, agent=Agent("m", {}, {}))
    return Session(trace, model="m", sampling=Sampling(), endpoint="soak")


async def round_of(server: Server, count: int, turns: int) -> tuple[list[Session], int]:
    """All conversations at once; returns their sessions and how often agents were failed."""
    sessions = [new_session(number) for number in range(count)]
    failures = 0
    async with anyio.create_task_group() as group:
        stop = anyio.Event()

        async def serve(session: Session, up: anyio.Event) -> None:
            async with server.slot(session):
                up.set()
                await stop.wait()
            session.close()

        ups = [anyio.Event() for _ in sessions]
        for session, up in zip(sessions, ups, strict=True):
            group.start_soon(serve, session, up)
        for up in ups:
            await up.wait()
        wanted = {"url": f"{server.url}/v1", "keys": [session.api_key for session in sessions], "turns": turns}
        argv = [sys.executable, __file__, "--agents"]
        failures = int((await anyio.run_process(argv, input=json.dumps(wanted).encode(), stderr=None)).stdout)
        stop.set()
    return sessions, failures


def faulty_turns(sessions: list[Session], turns: int) -> list[str]:
    """Turns that are not exactly once in the graph of their conversation."""
    wrong: list[str] = []
    for number, session in enumerate(sessions):
        nodes = session.trace.nodes
        sampled = Counter(node.message.text for node in nodes if node.sampled)
        expected = Counter(f"echo {number}.{turn}" for turn in range(turns))
        if sampled != expected or len(nodes) != 2 * turns or len(session.trace.graph.leaves()) != 1:
            wrong.append(f"{number}: {len(nodes)} nodes, {(sampled - expected) + (expected - sampled)}")
    return wrong


async def given_back(sockets: int, seconds: float) -> Held:
    """What is held once there are no more sockets than that, or after so many seconds."""
    with anyio.move_on_after(seconds):
        while held().sockets > sockets:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.5)
    return held()


@contextmanager
def provider() -> Generator[str]:
    argv = [sys.executable, __file__, "--provider"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
        child.stdin.close()


def chaotic(url: str, seed: int) -> Client:
    settings = HttpSettings(
        base_url=url,
        api_key_var=None,
        chaos=FAULTS,
        chaos_seed=seed,
        chaos_delay=0.2,
        max_retries=1,
        max_retry_wait=0.05,
    )
    return create_client(settings)


@dataclass
class Outcome:
    """What the rounds came to."""

    turns: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    failures: int = 0
    """How often agents were failed."""
    failed: Counter[str] = field(default_factory=Counter[str])
    """The calls of that, by cause."""
    wrong: list[str] = field(default_factory=list[str])
    levels: list[Held] = field(default_factory=list[Held])
    """What was held after each round."""

    async def hold(self, server: Server, count: int, turns: int) -> None:
        """Hold one round."""
        started, cpu = time.perf_counter(), time.process_time()
        sessions, failures = await round_of(server, count, turns)
        self.seconds += time.perf_counter() - started
        self.cpu += time.process_time() - cpu
        self.turns += count * turns
        self.failures += failures
        self.wrong += faulty_turns(sessions, turns)
        calls = (call for session in sessions for call in session.trace.calls)
        self.failed += Counter(call.error.message for call in calls if call.error is not None)


async def soak(url: str, args: argparse.Namespace) -> bool:
    turns = -(-args.turns // (args.sessions * args.rounds))
    client, outcome = chaotic(url, args.seed), Outcome()
    # What a loop leaves open once for the whole process is no leak.
    await anyio.run_process([sys.executable, "-c", ""])
    print(f"{'':<28}{'descriptors':>12}{'sockets':>9}{'tasks':>7}{'MiB':>9}")
    before = held()
    print(f"{'before':<28}{before}")
    # The server is told to stop before its task group waits for it, whatever happens.
    async with client.serving(), anyio.create_task_group() as group, AsyncExitStack() as stack:
        server = Server(client)
        stack.callback(server.stop)
        await group.start(server.run)
        for number in range(args.rounds):
            await outcome.hold(server, args.sessions, turns)
            print(f"{f'just after round {number + 1}':<28}{held()}", flush=True)
            outcome.levels.append(await given_back(before.sockets + LISTENING, args.patience))
            print(f"{'a little later':<28}{outcome.levels[-1]}", flush=True)
    end = held()
    print(f"{'stopped':<28}{end}")
    report(client, outcome, args)
    first, last = outcome.levels[0], outcome.levels[-1]
    is_back = (last.sockets, last.tasks) == (first.sockets, first.tasks) and last.mib < 1.1 * first.mib + 4
    return not outcome.wrong and is_back and (end.descriptors, end.tasks) == (before.descriptors, before.tasks)


def report(client: Client, outcome: Outcome, args: argparse.Namespace) -> None:
    each = 1000 * outcome.cpu / outcome.turns
    held_at_once = f"{args.sessions} conversations at a time"
    print(f"{outcome.turns} turns of {held_at_once} in {outcome.seconds:.1f} s, {each:.2f} ms CPU each")
    faults = dict(sorted(client.injected_faults.items()))
    print(f"{client.injected_faults.total()} faults injected: {faults}; agents were failed {outcome.failures} times")
    for text, number in outcome.failed.most_common(8):
        print(f"    {number} x {text}")
    print(f"turns that are not exactly once in their graph: {len(outcome.wrong)} {outcome.wrong[:3]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20_000, help="in all")
    parser.add_argument("--sessions", type=int, default=256, help="conversations at the same time")
    parser.add_argument(
        "--rounds", type=int, default=4, help="one after the other; memory must not grow from the first on"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for idle connections to close")
    parser.add_argument("--provider", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--agents", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.provider:
        asyncio.run(provide())
    elif args.agents:
        wanted = json.load(sys.stdin)
        asyncio.run(act(wanted["keys"], wanted["url"], wanted["turns"]))
    else:
        with provider() as url:
            is_clean = anyio.run(soak, url, args, backend_options={"use_uvloop": True})
        raise SystemExit(0 if is_clean else 1)


if __name__ == "__main__":
    main()
