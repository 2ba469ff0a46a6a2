"""The libraries that could make calls to providers, on small calls to a loopback server, at 1, 32 and 256 callers."""

import time
from collections.abc import Awaitable, Callable

import aiohttp
import anyio
import httpx
from running import provider

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 900)
HEADERS = {"content-type": "application/json"}
CALLS = 3000

Call = Callable[[], Awaitable[None]]


async def measure(call: Call, callers: int) -> tuple[float, float, float]:
    """Returns CPU milliseconds of this process per call, calls per second, and the 99th percentile in milliseconds."""
    left = CALLS
    taken: list[float] = []

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            start = time.perf_counter()
            await call()
            taken.append(time.perf_counter() - start)

    await call()
    cpu, wall = time.process_time(), time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(callers):
            group.start_soon(caller)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return cpu / len(taken) * 1000, len(taken) / wall, sorted(taken)[int(len(taken) * 0.99)] * 1000


async def main() -> None:
    with provider() as base_url:
        url = f"{base_url}/chat/completions"
        async with (
            httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=None) as client,  # noqa: S113
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):

            async def through_httpx() -> None:
                (await client.post(url, content=BODY, headers=HEADERS)).raise_for_status()

            async def through_aiohttp() -> None:
                async with session.post(url, data=BODY, headers=HEADERS) as response:
                    await response.read()

            print(f"{'library':<10}{'callers':>9}{'CPU ms/call':>13}{'calls/s':>9}{'p99 ms':>9}")
            for name, call in {"httpx": through_httpx, "aiohttp": through_aiohttp}.items():
                for callers in (1, 32, 256):
                    cpu, rate, p99 = await measure(call, callers)
                    print(f"{name:<10}{callers:>9}{cpu:>13.3f}{rate:>9.0f}{p99:>9.1f}")


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
