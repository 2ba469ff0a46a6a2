"""Signals to `vfx eval` at any moment: the same clean end, with every finished rollout kept."""

import os
import random
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from tests.support.command import read_lines, run_dir, start_vfx
from tests.support.processes import descendants, handles_signals, in_groups, survivors
from tests.support.provider import Reply, Request, completion, scripted_provider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for leftovers in /proc"),
]

MOMENTS = 20
# From the handler's installation past the end of the run below.
LONGEST_S = 1.5


class Ended:
    """How an interrupted command ended."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes, mark: str) -> None:
        self.code = code
        self.stdout = stdout.decode()
        self.stderr = stderr.decode()
        self.left = survivors(mark)


async def finish(process: Process, mark: str) -> Ended:
    output: dict[str, bytes] = {}

    async def read(name: str, stream: Any) -> None:
        output[name] = b"".join([piece async for piece in stream])

    with anyio.fail_after(8):
        async with anyio.create_task_group() as group:
            group.start_soon(read, "stdout", process.stdout)
            group.start_soon(read, "stderr", process.stderr)
        code = await process.wait()
    return Ended(code, output["stdout"], output["stderr"], mark)


def check_clean(ended: Ended, cwd: Path, codes: Sequence[int]) -> None:
    assert ended.code in codes, ended.stderr
    assert ended.left == []
    assert "Traceback" not in ended.stderr
    for trouble in ("never retrieved", "never awaited", "unclosed", "Unhandled"):
        assert trouble not in ended.stderr
    for path in cwd.glob("outputs/*/*/*.jsonl"):
        read_lines(path)
    for path in cwd.glob("outputs/*/*/run.log"):
        assert "Traceback" not in path.read_text()


OPTIONS = ("arithmetic", "--client.type", "scripted", "--client.latency", "0.2", "-c", "4", "-n", "12")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", range(MOMENTS))
async def test_interrupted_at_a_random_moment(tmp_path: Path, number: int, times: int) -> None:
    mark = secrets.token_hex(8)
    moment = random.Random(number * 2 + times).uniform(0, LONGEST_S)
    process = await start_vfx("eval", *OPTIONS, cwd=tmp_path, env={"MARK": mark})
    assert await handles_signals(process.pid)
    await anyio.sleep(moment)
    sent = 0
    for _ in range(times):
        if process.returncode is None:
            os.kill(process.pid, signal.SIGINT)
            sent += 1
            await anyio.sleep(0.02)
    ended = await finish(process, mark)
    # One that came when all was over, or that the dying process no longer saw.
    is_late = "exit        0: finished" in ended.stdout
    check_clean(ended, tmp_path, (0, 130) if is_late else (130,))


async def test_finished_rollouts_are_kept_and_interrupted_ones_noted(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return completion("7") if len(provider.requests) <= 3 else Reply(None, ending="hang")

    mark = secrets.token_hex(8)
    async with scripted_provider(default=answer) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none", "-c", "4")
        process = await start_vfx("eval", "arithmetic", *options, cwd=tmp_path, env={"MARK": mark})
        await provider.arrived(7)
        os.kill(process.pid, signal.SIGINT)
        ended = await finish(process, mark)
        for request in provider.requests[3:]:
            with anyio.fail_after(1):
                await request.gone.wait()
    check_clean(ended, tmp_path, (130,))
    folder = run_dir(tmp_path)
    assert len(read_lines(folder / "traces.jsonl")) == 3
    assert [record["reason"] for record in read_lines(folder / "attempts.jsonl")] == ["interrupted"] * 4
    assert "3 scored  0 errored  4 interrupted" in ended.stdout
    assert ended.stderr.count("SIGINT") == 1


async def test_terminate_ends_the_run_alike(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    process = await start_vfx("eval", *OPTIONS, cwd=tmp_path, env={"MARK": mark})
    assert await handles_signals(process.pid)
    await anyio.sleep(0.6)
    os.kill(process.pid, signal.SIGTERM)
    check_clean(await finish(process, mark), tmp_path, (143,))


async def test_a_signal_to_the_whole_group_gives_the_same_result(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    process = await start_vfx("eval", *OPTIONS, cwd=tmp_path, env={"MARK": mark})
    assert await handles_signals(process.pid)
    await anyio.sleep(0.6)
    os.killpg(process.pid, signal.SIGINT)
    check_clean(await finish(process, mark), tmp_path, (130,))


BLOCKING = """
import pathlib, time
import vfx

class Stuck(vfx.Task):
    async def setup(self):
        pathlib.Path("blocked").touch()
        time.sleep(60)

class Env(vfx.Taskset):
    def load(self):
        yield Stuck(prompt="x")
"""


@pytest.mark.parametrize("hook", ["async def setup", "def setup"])
async def test_code_that_blocks_is_no_obstacle(tmp_path: Path, hook: str) -> None:
    (tmp_path / "env.py").write_text(BLOCKING.replace("async def setup", hook))
    mark = secrets.token_hex(8)
    process = await start_vfx("eval", "./env.py", "--client.type", "scripted", cwd=tmp_path, env={"MARK": mark})
    with anyio.fail_after(10):
        while not (tmp_path / "blocked").exists():
            await anyio.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    with anyio.fail_after(5):
        check_clean(await finish(process, mark), tmp_path, (130,))


PROGRAM = """
import vfx

class Env(vfx.Taskset):
    def load(self):
        for number in range(4):
            yield vfx.Task(prompt=str(number))

class Program(vfx.Harness):
    async def run(self, job):
        return await job.runtime.run(["sh", "-c", "trap '' TERM INT; echo up >&2; sleep 300 & sleep 300; sleep 300"])
"""


@pytest.mark.parametrize("times", [1, 2])
async def test_programs_under_evaluation_do_not_survive(tmp_path: Path, times: int) -> None:
    (tmp_path / "env.py").write_text(PROGRAM)
    mark = secrets.token_hex(8)
    process = await start_vfx(
        *("eval", "./env.py", "--harness.id", "./env.py", "--client.type", "scripted"),
        cwd=tmp_path,
        env={"MARK": mark},
    )
    with anyio.fail_after(10):
        # The keeper, and for each rollout a supervisor, the shell and its two children.
        while len(groups := descendants(process.pid)) < 1 + 4 * 4:
            await anyio.sleep(0.01)
    for _ in range(times):
        os.kill(process.pid, signal.SIGINT)
        await anyio.sleep(0.02)
    check_clean(await finish(process, mark), tmp_path, (130,))
    assert in_groups(groups) == []
