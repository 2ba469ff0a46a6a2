"""The interception as a server to be measured.

Prints where it is, its keys and its memory, and serves until stdin closes.
"""

import gc
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.server import Server
from vfx.interception.session import Session
from vfx.messages import Sampling
from vfx.trace.record import Agent, TaskRef, Trace


def new_session(number: int) -> Session:
    task = TaskRef(type="bench", key=str(number), occurrence=0, data={"prompt": f"task {number}"})
    trace = Trace(id=str(number), task=task, rollout=0, agent=Agent("bench", {}, {}))
    return Session(trace, model="bench", sampling=Sampling(), endpoint="http://127.0.0.1")


def resident_kib() -> int:
    """KiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


async def main(provider: str, sessions: int) -> None:
    client = HttpClient(HttpSettings(base_url=provider, api_key_var=None))
    server = Server(client)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client.serving())
        group = await stack.enter_async_context(anyio.create_task_group())
        await group.start(server.run)
        # The first one fills what all share.
        await stack.enter_async_context(server.slot(new_session(-1)))
        gc.collect()
        before = resident_kib()
        slots = [await stack.enter_async_context(server.slot(new_session(number))) for number in range(sessions)]
        gc.collect()
        each = (resident_kib() - before) / sessions
        with tempfile.NamedTemporaryFile("w", suffix=".json") as keys:
            json.dump([slot.api_key for slot in slots], keys)
            keys.flush()
            url = f"{slots[0].base_url}/chat/completions"
            print(json.dumps({"url": url, "pid": os.getpid(), "keys": keys.name, "session_kib": each}), flush=True)
            await anyio.to_thread.run_sync(sys.stdin.read)
        server.stop()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), backend_options={"use_uvloop": True})
