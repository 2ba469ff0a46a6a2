"""64 rollouts that want a server at the same time, 4 on each, with tunnels that take half a second to open."""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio

from vfx.clients.base import ScriptedSettings, create_client
from vfx.errors import TunnelError
from vfx.interception.base import ElasticSettings, create_interception
from vfx.interception.session import Session
from vfx.messages import Sampling
from vfx.trace.record import Agent, TaskRef, Trace

ROLLOUTS = 64
TUNNEL_S = 0.5


class Tunnels:
    """Leads nowhere, in half a second; every third one fails, at once or at the end of that time."""

    def __init__(self, *, failing: bool, at_once: bool) -> None:
        self._failing = failing
        self._at_once = at_once
        self._asked = 0

    @asynccontextmanager
    async def __call__(self, url: str) -> AsyncGenerator[str]:
        self._asked += 1
        # Only among the first round: each start fails once at the most.
        is_failing = self._failing and self._asked % 3 == 0 and self._asked <= ROLLOUTS / 4
        if not (is_failing and self._at_once):
            await anyio.sleep(TUNNEL_S)
        if is_failing:
            raise TunnelError("refused")
        yield url


def session(number: int) -> Session:
    task = TaskRef(type="T", key=str(number), occurrence=0, data={})
    trace = Trace(id=str(number), task=task, rollout=0, agent=Agent("m", {}, {}))
    return Session(trace, model="m", sampling=Sampling(), endpoint="none")


async def measure(tunnels: Tunnels) -> tuple[list[float], int]:
    client = create_client(ScriptedSettings())
    pool = create_interception(ElasticSettings(multiplex=4), client, open_tunnel=tunnels)
    times: list[float] = []
    everyone = anyio.Event()

    async def rollout(number: int, start: float) -> None:
        async with pool.acquire(session(number)):
            times.append(time.perf_counter() - start)
            if len(times) == ROLLOUTS:
                everyone.set()
            await everyone.wait()

    async with pool.serving(), anyio.create_task_group() as group:
        start = time.perf_counter()
        for number in range(ROLLOUTS):
            group.start_soon(rollout, number, start)
    return sorted(times), pool.peak_servers


async def main(*, is_brief: bool) -> None:
    cases = {
        "all open": Tunnels(failing=False, at_once=False),
        "every third fails once, at once": Tunnels(failing=True, at_once=True),
        "every third fails once, after 0.5 s": Tunnels(failing=True, at_once=False),
    }
    if is_brief:
        times, _ = await measure(cases["all open"])
        print(times[-1])
        return
    print(f"{'tunnels':<38}{'first s':>9}{'median s':>10}{'last s':>8}{'servers':>9}")
    for name, tunnels in cases.items():
        times, servers = await measure(tunnels)
        print(f"{name:<38}{times[0]:>9.3f}{times[ROLLOUTS // 2]:>10.3f}{times[-1]:>8.3f}{servers:>9}")


if __name__ == "__main__":
    anyio.run(partial(main, is_brief="--brief" in sys.argv), backend_options={"use_uvloop": True})
