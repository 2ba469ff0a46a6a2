"""For how long an event loop stands still while something else is done, on it or in a thread of the same process."""

import asyncio
import time
from collections.abc import Awaitable, Callable

REPEATS = 9
TICK_S = 0.0005


async def longest_stall(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds between two turns of the loop while `work` is awaited: the longest of each run, the shortest of all.

    The interpreter's lock is given back to a waiting thread only where the one that holds it lets go, so that a thread
    may stand in the way of the loop as well.
    """
    await work()
    stalls: list[float] = []
    for _ in range(REPEATS):
        longest, last, is_over = 0.0, time.perf_counter(), False

        async def tick() -> None:
            nonlocal longest, last
            while not is_over:  # noqa: B023 - awaited within the round
                await asyncio.sleep(TICK_S)
                longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

        ticking = asyncio.ensure_future(tick())
        await asyncio.sleep(0.02)
        longest = 0.0
        await work()
        await asyncio.sleep(TICK_S)
        is_over = True
        await ticking
        stalls.append((longest - TICK_S) * 1000)
    return min(stalls)
