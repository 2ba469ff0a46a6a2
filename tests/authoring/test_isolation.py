import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from tests.support.processes import children
from tests.support.traces import make_trace
from vfx.authoring.hooks import call_hook, hooks_of, reward, stop
from vfx.authoring.isolation import HookProcessError
from vfx.authoring.loading import load_file
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import TaskError
from vfx.trace.record import Trace

pytestmark = pytest.mark.anyio

SEVEN_NINES = 9_999_999


class UnpicklableError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Isolated(Task):
    answer: str = ""

    @reward(isolate=True)
    def where(self, trace: Trace) -> dict[str, float]:
        sys.stdout.write("printed text must not break the answer")
        return {"pid": os.getpid(), "right": self.answer in trace.last_reply}

    @reward(isolate=True)
    async def coroutine(self) -> float:
        await anyio.lowlevel.checkpoint()
        return 0.5

    @reward(isolate=True)
    def owned(self) -> float:
        raise TaskError("known")

    @reward(isolate=True)
    def foreign(self) -> float:
        raise UnpicklableError("left", "right")

    @reward(isolate=True)
    def exits(self) -> float:
        sys.exit(3)

    @reward(isolate=True)
    def dies(self) -> float:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0.0

    @reward(isolate=True)
    def burns(self) -> float:
        return sum(1 for _ in range(10**12))

    @reward(isolate=True)
    def gives_a_lambda(self) -> object:
        return lambda: None


async def call(threads: HookThreads, name: str, task: Task | None = None) -> object:
    task = task or Isolated(answer="our")
    [hook] = [hook for hook in hooks_of(type(task), "reward") if hook.name == name]
    return await call_hook(hook, task, {"trace": make_trace(reply="four"), "task": task}, threads)


@asynccontextmanager
async def serving() -> AsyncGenerator[HookThreads]:
    before = children(os.getpid())
    threads = HookThreads()
    async with threads.processes.serving():
        yield threads
    assert set(children(os.getpid())) <= set(before)


async def test_a_hook_runs_in_another_process_which_is_used_again() -> None:
    async with serving() as threads:
        first, second = await call(threads, "where"), await call(threads, "where")
    assert first == second
    assert isinstance(first, dict)
    assert first["right"] is True
    assert first["pid"] != os.getpid()


async def test_an_async_hook_can_be_isolated() -> None:
    async with serving() as threads:
        assert await call(threads, "coroutine") == 0.5


async def test_a_failure_comes_back_with_its_cause() -> None:
    async with serving() as threads:
        with pytest.raises(TaskError, match="known"):
            await call(threads, "owned")
        with pytest.raises(Exception, match="leftright") as caught:
            await call(threads, "foreign")
        with pytest.raises(Exception, match="3"):
            await call(threads, "exits")
        with pytest.raises(Exception, match="pickle") as unreadable:
            await call(threads, "gives_a_lambda")
    assert type(caught.value).__name__ == "UnpicklableError"
    assert "in foreign" in str(caught.value.__cause__)
    assert "lambda" in str(unreadable.value)


async def test_a_process_that_dies_is_an_error_of_its_hook_and_is_replaced() -> None:
    async with serving() as threads:
        with pytest.raises(HookProcessError, match="killed by signal 9"):
            await call(threads, "dies")
        assert await call(threads, "coroutine") == 0.5


async def test_one_that_died_while_idle_is_replaced() -> None:
    async with serving() as threads:
        first = await call(threads, "where")
        assert isinstance(first, dict)
        os.kill(int(cast("dict[str, float]", first)["pid"]), signal.SIGKILL)
        await anyio.sleep(0.1)
        assert await call(threads, "coroutine") == 0.5


async def test_at_the_deadline_the_process_is_killed() -> None:
    async with serving() as threads:
        await call(threads, "coroutine")
        workers = children(os.getpid())
        with anyio.move_on_after(0.3) as deadline:
            await call(threads, "burns")
        assert deadline.cancelled_caught
        assert len(children(os.getpid())) < len(workers)
        assert await call(threads, "coroutine") == 0.5


async def test_there_are_no_more_processes_than_cpus() -> None:
    async with serving() as threads:
        pids: set[float] = set()

        async def note_pid() -> None:
            answer = await call(threads, "where")
            assert isinstance(answer, dict)
            pids.add(cast("dict[str, float]", answer)["pid"])

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(note_pid)
    assert 1 <= len(pids) <= (os.cpu_count() or 1)


async def test_a_task_from_a_file_is_found_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("BONUS = 0.25")
    path = tmp_path / "words.py"
    path.write_text(
        "import vfx\nfrom beside import BONUS\n"
        "class Word(vfx.Task):\n    @vfx.reward(isolate=True)\n"
        "    def right(self, trace): return BONUS + ('four' in trace.last_reply)\n"
    )
    module = load_file(str(path), "ENV")
    async with serving() as threads:
        assert await call(threads, "right", module.Word(prompt="x")) == 1.25


async def test_outside_serving_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="only inside serving"):
        await call(HookThreads(), "where")


@pytest.mark.parametrize(
    "body", ["sum(1 for _ in range(10**12))", "re.fullmatch('(a+)+b', 'a' * 60)", "time.sleep(60)"]
)
async def test_no_process_outlives_a_run_that_was_killed(tmp_path: Path, body: str) -> None:
    (tmp_path / "burning.py").write_text(
        "import os, re, time\nimport vfx\n"
        "class Burning(vfx.Task):\n    @vfx.reward(isolate=True)\n    def burn(self):\n"
        f"        open('pid', 'w').write(str(os.getpid()) + '.')\n        return {body}\n"
    )
    program = (
        "import anyio, burning\nfrom vfx.authoring.hooks import call_hook, hooks_of\n"
        "from vfx.authoring.threads import HookThreads\n"
        "async def main():\n    threads = HookThreads()\n    task = burning.Burning()\n"
        "    async with threads.processes.serving():\n"
        "        await call_hook(hooks_of(burning.Burning, 'reward')[0], task, {}, threads)\n"
        "anyio.run(main)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    with anyio.fail_after(20):
        while not (tmp_path / "pid").exists() or "." not in (tmp_path / "pid").read_text():
            await anyio.sleep(0.02)
        worker = int((tmp_path / "pid").read_text().rstrip("."))
        run.kill()
        run.wait()
        while is_alive(worker):
            await anyio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Busy(Task):
    @reward(isolate=True)
    def apart(self) -> float:
        return busy()

    @reward
    def together(self) -> float:
        return busy()


def busy() -> float:
    """Holds the interpreter for a good while: one step of C code lets no other thread in."""
    return float(re.fullmatch("(a+)+b", "a" * 22) is None)


async def longest_pause(name: str) -> float:
    """Seconds that the event loop was late at most while the hook ran."""
    pauses: list[float] = []

    async def measure() -> None:
        while True:
            before = time.perf_counter()
            await anyio.sleep(0.001)
            pauses.append(time.perf_counter() - before)

    async with serving() as threads:
        await call(threads, "apart", Busy())
        async with anyio.create_task_group() as group:
            group.start_soon(measure)
            await call(threads, name, Busy())
            group.cancel_scope.cancel()
    return max(pauses)


async def test_code_that_burns_cpu_holds_up_the_event_loop_only_where_it_is_not_isolated() -> None:
    apart, together = await longest_pause("apart"), await longest_pause("together")
    assert apart < together


def test_a_hook_that_can_not_be_isolated_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="top level"):

        class Local(Task):  # pyright: ignore[reportUnusedClass]
            @reward(isolate=True)
            def right(self) -> float:
                return 0.0

    with pytest.raises(TypeError, match=r"Local2.done asks for runtime.*drop isolate=True"):

        class Local2(Task):  # pyright: ignore[reportUnusedClass]
            @stop(isolate=True)
            def done(self, runtime: object) -> bool:
                return False
