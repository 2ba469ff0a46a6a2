"""What tool servers cost: many that start at once, one more for each rollout, and runs that use them.

`tools.py` prints a table; `tools.py ports` starts 8 evals at once, again and again, while ports are taken from under
them, and counts what went wrong.
"""

import json
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from running import ROOT

sys.path.insert(0, str(ROOT))

from served import SLOW, SLOW_S, Note, Noted

from vfx.authoring.tool_settings import tool_settings
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.servers import ToolServers

STATE = ("http://127.0.0.1:9", "key")
ROLLOUTS = 40


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def start_many() -> float:
    programs = Programs()
    servers = ToolServers(tool_settings("Bench", SLOW).model_validate({}), tool_settings("None", {})(), programs)
    async with programs.serving():
        started = time.monotonic()
        async with servers.serving():
            return time.monotonic() - started


async def own_servers(count: int) -> tuple[float, float]:
    programs = Programs()
    servers = ToolServers(
        tool_settings("None", {})(), tool_settings("Own", {"note": Note}).model_validate({}), programs
    )
    task = Noted(prompt="x")
    times: list[float] = []
    downs: list[float] = []
    async with programs.serving(), servers.serving():
        runtime = SubprocessRuntime(SubprocessSettings(), programs)
        for _ in range(count):
            begin = time.monotonic()
            async with servers.opened(task, runtime, STATE):
                times.append(time.monotonic() - begin)
                begin = time.monotonic()
            downs.append(time.monotonic() - begin)
    times, downs = sorted(times), sorted(downs)
    return times[len(times) // 2], downs[len(downs) // 2]


def measure() -> None:
    before = children()
    ready = anyio.run(start_many)
    cpu = children() - before
    print(f"12 servers whose start takes {SLOW_S:g} s: ready after {ready:.2f} s, {cpu:.2f} s CPU in all")
    before = children()
    anyio.run(own_servers, 1)
    fixed = children() - before
    before = children()
    up, down = anyio.run(own_servers, ROLLOUTS + 1)
    each = (children() - before - fixed) / ROLLOUTS * 1e3
    print(f"a rollout's own server: up in {up * 1e3:.0f} ms, down in {down * 1e3:.0f} ms (medians), {each:.0f} ms CPU")
    begin, before = time.monotonic(), children()
    with tempfile.TemporaryDirectory() as folder:
        run_search(Path(folder), "-n", "300", "--taskset.questions", "300", "-c", "32").check_returncode()
    wall, cpu = time.monotonic() - begin, children() - before
    what = "300 rollouts at 32, 3 calls each to a shared and an own server"
    print(f"{what}: {wall:.1f} s, {cpu / 300 * 1e3:.0f} ms CPU each")


REPLIES = [
    {"tool": "search", "arguments": {"query": "Alabury"}},
    {"tool": "note", "arguments": {"text": "x"}},
    {"tool": "notes", "arguments": {}},
]


def run_search(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    script = json.dumps([*map(json.dumps, REPLIES), "done"])
    argv = (sys.executable, "-m", "vfx", "eval", "search", "--client.type", "scripted", "--client.replies", script)
    return subprocess.run(
        [*argv, *options, "--display", "none"], cwd=folder, capture_output=True, text=True, check=False
    )


ENVIRONMENT = (
    """
import vfx

"""
    + "".join(
        f"""
class Server{number}(vfx.Toolset):
    run: str = ""

    @vfx.tool
    def whose_{number}(self) -> str:
        return self.run
"""
        for number in range(4)
    )
    + """
class Env(vfx.Taskset):
    toolsets = {f"s{number}": globals()[f"Server{number}"] for number in range(4)}

    def load(self):
        for number in range(4):
            yield vfx.Task(prompt=str(number))
"""
)


def ports(rounds: int) -> None:
    """8 evals with 4 servers each at a time, while another thread keeps taking and giving back free ports."""
    over = threading.Event()
    thread = threading.Thread(target=_grab, args=(over,))
    thread.start()
    failed = foreign = 0
    try:
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                bad, mixed = _round(Path(folder))
            failed, foreign = failed + bad, foreign + mixed
            print(f"round {number + 1}: {failed} runs failed, {foreign} answers of another run's server", flush=True)
    finally:
        over.set()
        thread.join()


def _grab(over: threading.Event) -> None:
    while not over.is_set():
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(100)]
        time.sleep(0.005)
        for listener in held:
            listener.close()


def _round(folder: Path) -> tuple[int, int]:
    (folder / "env.py").write_text(ENVIRONMENT)
    replies = json.dumps([json.dumps({"tool": f"whose_{number}", "arguments": {}}) for number in range(4)] + ["done"])
    runs: list[subprocess.Popen[bytes]] = []
    for number in range(8):
        own = folder / str(number)
        own.mkdir()
        names = [option for server in range(4) for option in (f"--taskset.tools.s{server}.run", f"run {number}")]
        argv = (sys.executable, "-m", "vfx", "eval", "../env.py", "--client.type", "scripted", "--display", "none")
        runs.append(subprocess.Popen([*argv, "--client.replies", replies, *names], cwd=own, stdout=subprocess.DEVNULL))
    failed = sum(run.wait() != 0 for run in runs)
    return failed, sum(len(_foreign(path)) for path in folder.glob("*/outputs/*/*/traces.jsonl"))


def _foreign(path: Path) -> Sequence[str]:
    own = f"run {path.parts[-5]}"
    nodes = [node for line in path.read_text().splitlines() for node in json.loads(line)["nodes"]]
    texts = [node["message"]["content"] for node in nodes if node["message"]["role"] == "tool"]
    assert texts
    return [text for text in texts if text != own]


if __name__ == "__main__":
    if sys.argv[1:2] == ["ports"]:
        ports(int(sys.argv[2]) if sys.argv[2:] else 20)
    else:
        measure()
