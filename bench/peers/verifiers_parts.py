"""Parts of verifiers 0.4 for the table, run by a Python that has it: `serve`, `acquire` or `append`.

`serve` tells of itself as `serving.py` does; the others print one figure.
"""

import asyncio
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.interception import ElasticInterceptionPool, ElasticInterceptionPoolConfig, InterceptionServer
from verifiers.v1.interception import server as server_module
from verifiers.v1.interception.tunnel.base import Tunnel
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import AgentInfo, ModelCall, TimeSpan, TraceTask
from verifiers.v1.types import AssistantMessage, Usage, UserMessage
from verifiers.v1.utils.trace_store import append_episode

sys.path.insert(0, str(Path(__file__).parent.parent))
from stalls import longest_stall

ROLLOUTS, TUNNEL_S, TURNS = 64, 0.5, 800


def session(number: int, provider: str) -> RolloutSession:
    client = EvalClientConfig(base_url=provider, api_key_var="BENCH_KEY")
    task = TraceTask(type="T", data=vf.TaskData(idx=number, prompt=f"task {number}"))
    trace = vf.Trace(task=task, agent=AgentInfo(config=vf.AgentConfig(model="bench", client=client)))
    return RolloutSession(ctx=ModelContext(model="bench", client=client), trace=trace)


async def serve(provider: str, count: int) -> None:
    async with InterceptionServer() as server:
        server.register(session(-1, provider))
        gc.collect()
        before = resident_kib()
        sessions = [session(number, provider) for number in range(count)]
        keys = [server.register(each)[0] for each in sessions]
        gc.collect()
        each = (resident_kib() - before) / count
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(keys, file)
            file.flush()
            url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
            print(json.dumps({"url": url, "pid": os.getpid(), "keys": file.name, "session_kib": each}), flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class SlowTunnel(Tunnel):
    @contextlib.asynccontextmanager
    async def expose(self, port: int):  # noqa: ANN201
        await asyncio.sleep(TUNNEL_S)
        yield f"http://127.0.0.1:{port}"


async def acquire() -> float:
    """Seconds until 64 rollouts have a slot."""
    server_module.make_tunnel = lambda config: SlowTunnel(config)
    everyone, start, ready = asyncio.Event(), time.perf_counter(), 0
    async with ElasticInterceptionPool(ElasticInterceptionPoolConfig(multiplex=4), requires_tunnel=True) as pool:

        async def rollout(number: int) -> None:
            nonlocal ready
            async with pool.acquire(session(number, "http://127.0.0.1:9")):
                ready += 1
                if ready == ROLLOUTS:
                    everyone.set()
                await everyone.wait()

        await asyncio.gather(*(rollout(number) for number in range(ROLLOUTS)))
        return time.perf_counter() - start


async def append() -> float:
    """Milliseconds for which the loop stands still while a trace of 800 turns is appended."""
    data = vf.TaskData(idx=0, prompt="q")
    task = vf.Task(data, vf.TaskConfig())
    info = TraceTask(type="Task", data=data, key=task.key, hash=task.hash)
    trace = vf.Trace(agent=vf.AgentInfo(config=vf.AgentConfig()), task=info, ok=True, is_completed=True)
    for _ in range(TURNS):
        parent = len(trace.nodes) - 1 if trace.nodes else None
        trace.nodes.append(MessageNode(parent=parent, message=UserMessage(content="u" * 400)))
        answer = AssistantMessage(content="a" * 400)
        trace.nodes.append(MessageNode(parent=len(trace.nodes) - 1, sampled=True, message=answer))
        usage, span = Usage(prompt_tokens=100, completion_tokens=10), TimeSpan(start=1.0, end=2.0)
        endpoint = "/chat/completions"
        trace.calls.append(ModelCall(node=len(trace.nodes) - 1, model="m", endpoint=endpoint, usage=usage, time=span))
    episode = Episode(env=EnvInfo(id="bench"), task=info, traces=[trace], ok=True)
    with tempfile.TemporaryDirectory() as folder:
        lock = asyncio.Lock()
        return await longest_stall(lambda: append_episode(Path(folder), episode, lock))


if __name__ == "__main__":
    os.environ.setdefault("BENCH_KEY", "x")
    part = sys.argv[1]
    if part == "serve":
        asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
    else:
        print(asyncio.run({"acquire": acquire, "append": append}[part]()))
