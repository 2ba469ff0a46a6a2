"""How much later the first byte of a stream comes when it passes through the interception, and each byte after it.

32 callers ask a provider that streams at the pace of a model, in turn directly and through the interception, which runs
in a process of its own as it does beside programs. One run gives both, so that a busy machine delays both alike.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

import anyio
from anyio.abc import SocketStream

from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.server import Server
from vfx.interception.session import Session
from vfx.messages import Sampling
from vfx.trace.record import Agent, TaskRef, Trace

BENCH = Path(__file__).parent
CALLERS = 32
ROUNDS = 12
FIRST_S, GAP_S, EVENTS = 0.3, 0.02, 20


@contextmanager
def child(*argv: str) -> Generator[subprocess.Popen[str]]:
    """A process that runs until its stdin is closed."""
    with subprocess.Popen([sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


async def serve(provider_port: int) -> None:
    """The interception, with one rollout a caller; tells its port and their keys, and at the end its CPU seconds."""
    settings = HttpSettings(base_url=f"http://127.0.0.1:{provider_port}/v1", api_key_var=None)
    client = HttpClient(settings)
    server = Server(client)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client.serving())
        group = await stack.enter_async_context(anyio.create_task_group())
        await group.start(server.run)
        slots = [await stack.enter_async_context(server.slot(new_session(number))) for number in range(CALLERS)]
        print(json.dumps([slots[0].base_url, [slot.api_key for slot in slots]]), flush=True)
        before = time.process_time()
        await anyio.to_thread.run_sync(sys.stdin.read)
        print(time.process_time() - before, flush=True)
        server.stop()


def new_session(number: int) -> Session:
    task = TaskRef(type="bench", key=str(number), occurrence=0, data={})
    trace = Trace(id=str(number), task=task, rollout=0, agent=Agent("bench", {}, {}))
    return Session(trace, model="bench", sampling=Sampling(), endpoint="http://127.0.0.1")


async def ask(stream: SocketStream, key: str) -> tuple[float, float]:
    """Seconds until the first event and until the end of one stream."""
    body = json.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": "x" * 900}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    start, first, got = time.perf_counter(), 0.0, bytearray()
    await stream.send(head.encode() + body)
    while not got.endswith(b"0\r\n\r\n"):
        got += await stream.receive()
        if not first and b"data: " in got:
            first = time.perf_counter() - start
    assert b"[DONE]" in got, bytes(got[:500])
    return first, time.perf_counter() - start


async def measure(direct_port: int, through_port: int, keys: list[str]) -> dict[str, list[tuple[float, float]]]:
    taken: dict[str, list[tuple[float, float]]] = {"direct": [], "through": []}

    async def caller(number: int) -> None:
        async with (
            await anyio.connect_tcp("127.0.0.1", direct_port) as direct,
            await anyio.connect_tcp("127.0.0.1", through_port) as through,
        ):
            # Callers that start together would all wait for each other, which programs do not.
            await anyio.sleep(number * (FIRST_S + GAP_S * EVENTS) / CALLERS)
            for turn in range(2 * ROUNDS + 2):
                name, stream = (("direct", direct), ("through", through))[(turn + number) % 2]
                figures = await ask(stream, keys[number])
                if turn >= 2:
                    taken[name].append(figures)

    async with anyio.create_task_group() as group:
        for number in range(CALLERS):
            group.start_soon(caller, number)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", type=int, help="serve the interception before the provider on this port")
    given: int | None = parser.parse_args().serve
    if given is not None:
        anyio.run(serve, given, backend_options={"use_uvloop": True})
        return
    with child(str(BENCH / "streams.py"), str(FIRST_S), str(GAP_S), str(EVENTS)) as provider:
        assert provider.stdout is not None
        port = int(provider.stdout.readline())
        with child(__file__, "--serve", str(port)) as interception:
            assert interception.stdout is not None
            assert interception.stdin is not None
            base_url, keys = json.loads(interception.stdout.readline())
            through = int(base_url.removesuffix("/v1").rpartition(":")[2])
            taken = anyio.run(measure, port, through, keys, backend_options={"use_uvloop": True})
            interception.stdin.close()
            cpu = float(interception.stdout.readline())
    calls = len(taken["through"])
    print(f"{CALLERS} callers, {calls} streams each way of {EVENTS} events, {GAP_S * 1000:g} ms apart")
    print(f"{'':<10}{'first byte ms: median':>24}{'p90':>8}{'p99':>8}{'last byte ms: median':>24}")
    for name, figures in taken.items():
        firsts, lasts = zip(*figures, strict=True)
        cuts = quantiles(firsts, n=100)
        print(
            f"{name:<10}{median(firsts) * 1000:>24.2f}{cuts[89] * 1000:>8.2f}{cuts[98] * 1000:>8.2f}"
            f"{median(lasts) * 1000:>24.2f}"
        )
    added = median(first for first, _ in taken["through"]) - median(first for first, _ in taken["direct"])
    print(f"added to the first byte: {added * 1000:.2f} ms median")
    print(f"CPU of the interception: {cpu / calls * 1000:.2f} ms a stream")


if __name__ == "__main__":
    main()
