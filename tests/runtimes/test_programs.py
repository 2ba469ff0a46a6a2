"""What the worst programs leave behind: nothing."""

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.support.processes import descendants, is_alive
from vfx.errors import SandboxError
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs, ProgramSpec
from vfx.runtimes.subprocess import SubprocessRuntime

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is certain"),
]

# Forks twice, so that nobody is its parent; keeps neither session, nor environment, nor pipe, nor manners.
ESCAPE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1], sys.argv[1] + ".done")
        os.closerange(0, 3)
        os.execve("/bin/sleep", ["sleep", "300"], {})
    os._exit(0)
while not os.path.exists(sys.argv[1] + ".done"):
    time.sleep(0.01)
"""


@pytest.fixture
async def programs() -> AsyncGenerator[Programs]:
    async with Programs().serving() as programs:
        yield programs


def box(programs: Programs, **settings: object) -> SubprocessRuntime:
    return SubprocessRuntime(SubprocessSettings.model_validate({"stop_grace": 0.2, **settings}), programs)


async def only_the_keeper() -> None:
    """Its supervisors may still have to be waited for."""
    with anyio.fail_after(2):
        while len(descendants(os.getpid())) > 1:
            await anyio.sleep(0.005)


async def test_helper_with_a_session_of_its_own_ends_with_the_program(programs: Programs, tmp_path: Path) -> None:
    result = await box(programs).run([sys.executable, "-S", "-c", ESCAPE, str(tmp_path / "pid")])
    assert result.is_ok
    assert not is_alive(int((tmp_path / "pid.done").read_text()))


async def test_at_the_deadline_all_is_gone_whatever_it_ignores(programs: Programs, tmp_path: Path) -> None:
    escape = f"{sys.executable} -S -c '{ESCAPE}' {tmp_path}/pid"
    script = f"trap '' TERM INT HUP; {escape}; (sleep 300 & sleep 300) & sleep 300"
    runtime = box(programs)
    with pytest.raises(TimeoutError):
        await runtime.run(["sh", "-c", script], timeout=0.5)
    assert not is_alive(int((tmp_path / "pid.done").read_text()))
    await only_the_keeper()


async def test_program_may_tidy_up_when_it_is_told_to_end(programs: Programs, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/tidy; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.01; done"
    runtime = box(programs, stop_grace=5.0)
    program = await runtime.start_background(["sh", "-c", script])
    with anyio.fail_after(5):
        while not (tmp_path / "up").exists():
            await anyio.sleep(0.01)
    await program.stop()
    assert (tmp_path / "tidy").exists()


async def test_tree_that_keeps_forking_is_felled(programs: Programs) -> None:
    # At most some hundred at a time, each living for a moment and forking again.
    fork = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(0.02)\n    else: time.sleep(0.001)\n    "
    fork += "if os.getppid() == 1: break\n    len(os.listdir('/proc')) > 700 and time.sleep(0.2)"
    with anyio.fail_after(10), pytest.raises(TimeoutError):
        await box(programs).run([sys.executable, "-S", "-c", fork], timeout=0.15)
    await only_the_keeper()


async def test_output_without_end_is_cut_and_disturbs_no_sibling(programs: Programs) -> None:
    results: dict[str, object] = {}

    async def flood() -> None:
        result = await box(programs, max_output_bytes=100).run(["head", "-c", "1G", "/dev/zero"])
        results["flood"] = result.is_cut

    async def sibling() -> None:
        for _ in range(5):
            results["sibling"] = (await box(programs).run(["echo", "fine"])).stdout

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(flood)
            group.start_soon(sibling)
    assert results["sibling"] == "fine\n"
    assert results["flood"] is True


async def test_program_that_kills_its_supervisor_gains_nothing(programs: Programs, tmp_path: Path) -> None:
    script = f"(echo $$ > {tmp_path}/pid; setsid sleep 300) & sleep 0.1; kill -9 $PPID; sleep 300"
    with anyio.fail_after(5):
        with pytest.raises(SandboxError, match="supervisor was killed"):
            await box(programs).run(["sh", "-c", script])
        await only_the_keeper()
    assert (await box(programs).run(["echo", "fine"])).stdout == "fine\n"


async def test_another_keeper_is_started_when_one_was_killed(programs: Programs) -> None:
    first = await programs.folder()
    [keeper] = descendants(os.getpid())
    os.kill(keeper, signal.SIGKILL)
    with anyio.fail_after(5):
        while is_alive(keeper):
            await anyio.sleep(0.01)
        while True:
            try:
                assert (await box(programs).run(["echo", "fine"])).stdout == "fine\n"
            except SandboxError:
                continue
            break
    assert await programs.folder() != first


async def test_memory_limit_counts_children_and_is_the_cause(programs: Programs) -> None:
    hog = "import time; x = bytearray(b'x') * 300_000_000; time.sleep(300)"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', sys.argv[1]])"
    program = await box(programs, memory=0.1).run([sys.executable, "-S", "-c", parent, hog], timeout=10)
    assert program.exceeded == "memory"
    assert program.exit_code == -signal.SIGKILL


async def test_memory_within_the_limit_is_none_of_its_business(programs: Programs) -> None:
    result = await box(programs, memory=1.0).run([sys.executable, "-S", "-c", "import time; time.sleep(0.3)"])
    assert (result.exit_code, result.exceeded) == (0, None)


async def test_cpu_limit_counts_children_and_is_the_cause(programs: Programs) -> None:
    with anyio.fail_after(10):
        result = await box(programs, cpu_seconds=0.3).run(["sh", "-c", "(while :; do :; done) & wait"])
    assert result.exceeded == "cpu"


async def test_background_program_is_read_and_stopped(programs: Programs) -> None:
    program = await box(programs).start_background(["sh", "-c", "echo up; echo down >&2; sleep 300"])
    with anyio.fail_after(5):
        while program.output != "up\ndown\n":
            await anyio.sleep(0.01)
    assert program.is_running
    assert is_alive(program.pid)
    await program.stop()
    await program.stop()
    assert not program.is_running
    assert not is_alive(program.pid)
    assert (await program.wait()).exit_code == -signal.SIGTERM


async def test_background_program_ends_with_its_runtime(programs: Programs) -> None:
    runtime = box(programs)
    program = await runtime.start_background(["sleep", "300"])
    await runtime.stop()
    assert not is_alive(program.pid)


async def test_cancelled_run_leaves_nothing(programs: Programs) -> None:
    runtime = box(programs)
    with anyio.move_on_after(0.3):
        await runtime.run(["sh", "-c", "trap '' TERM; sleep 300; sleep 300"])
    await only_the_keeper()


async def test_leaving_ends_what_nobody_stopped(tmp_path: Path) -> None:
    async with Programs().serving() as programs:
        program = await box(programs).start_background(["sleep", "300"])
        folder = await programs.folder()
    assert not is_alive(program.pid)
    assert not folder.exists()
    assert descendants(os.getpid()) == []


async def test_program_runs_only_inside_serving() -> None:
    programs = Programs()
    with pytest.raises(SandboxError, match="serving"):
        await programs.start(ProgramSpec(argv=["true"], cwd=Path("/"), env={}))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nul\0inside"], "NUL"),
        (["echo", "\ud835"], "surrogates not allowed"),
        (["echo", "x" * 200_000], "too long"),
        ([], "no program is named"),
    ],
)
async def test_what_can_not_be_started_says_why(programs: Programs, argv: list[str], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        await box(programs).run(argv)


async def test_folder_that_does_not_exist_is_named(programs: Programs) -> None:
    with pytest.raises(SandboxError, match="No such file"):
        await box(programs).run(["true"], cwd="nowhere")


async def test_output_of_many_at_once_stays_apart(programs: Programs) -> None:
    seen: dict[int, str] = {}

    async def one(number: int) -> None:
        result = await box(programs).run(["cat"], stdin=f"{number}" * 10_000)
        seen[number] = result.stdout

    async with anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(one, number)
    assert seen == {number: f"{number}" * 10_000 for number in range(32)}


VFX = """
import anyio, sys
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

async def main():
    async with Programs().serving() as programs:
        runtime = SubprocessRuntime(SubprocessSettings(), programs)
        await runtime.write("closed/file", "x")
        await runtime.start_background(["sh", "-c", "chmod 0 closed; trap '' TERM; setsid sleep 300; sleep 300"])
        print("up", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_when_the_owner_is_killed_nothing_stays(tmp_path: Path) -> None:
    owner = await anyio.open_process([sys.executable, "-c", VFX], env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        assert owner.stdout is not None
        with anyio.fail_after(10):
            assert (await owner.stdout.receive()).startswith(b"up")
            while len(below := descendants(owner.pid)) < 4:
                await anyio.sleep(0.01)
    finally:
        owner.kill()
        await owner.aclose()
    with anyio.fail_after(3):
        while any(map(is_alive, below)) or os.listdir(tmp_path):
            await anyio.sleep(0.01)


async def test_a_program_tells_its_first_line_while_it_runs(programs: Programs) -> None:
    program = await box(programs).start_background(["sh", "-c", "printf on; sleep 0.1; echo e; echo two; sleep 300"])
    with anyio.fail_after(5):
        assert await program.first_line() == "one"
    assert program.is_running
    await program.stop()


async def test_one_that_ends_without_a_line_has_none(programs: Programs) -> None:
    program = await box(programs).start_background(["printf", "no line"])
    with anyio.fail_after(5):
        assert await program.first_line() is None
        await program.ended()


async def test_a_program_reads_from_a_socket_of_ours_until_we_close_it(programs: Programs) -> None:
    program = await box(programs).start_background(["cat"], stdin="socket")
    assert program.stdin is not None
    program.stdin.send(b"here you are\n")
    with anyio.fail_after(5):
        assert await program.first_line() == "here you are"
        program.stdin.shutdown(socket.SHUT_WR)
        assert (await program.wait()).is_ok
