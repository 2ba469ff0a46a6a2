import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from vfx.errors import SandboxError
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runtime() -> AsyncGenerator[SubprocessRuntime]:
    async with Programs().serving() as programs:
        runtime = SubprocessRuntime(SubprocessSettings(max_output_bytes=1000), programs)
        await runtime.start()
        yield runtime
        await runtime.stop()


async def test_program_gets_arguments_input_and_variables_as_they_are(runtime: SubprocessRuntime) -> None:
    program = "import os, sys; print(sys.argv[1:], sys.stdin.read(), os.environ['X'])"
    result = await runtime.run([sys.executable, "-c", program, "$HOME; 'x'"], env={"X": "y"}, stdin="hello")
    assert (result.exit_code, result.stdout) == (0, "[\"$HOME; 'x'\"] hello y\n")


async def test_operators_environment_does_not_reach_the_program(
    runtime: SubprocessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the operator's")
    result = await runtime.run([sys.executable, "-c", "import os; print('OPENAI_API_KEY' in os.environ)"])
    assert result.stdout == "False\n"


async def test_failure_has_code_and_stderr(runtime: SubprocessRuntime) -> None:
    result = await runtime.run([sys.executable, "-c", "import sys; sys.exit('broken')"])
    assert (result.exit_code, result.is_ok, result.stderr) == (1, False, "broken\n")


async def test_of_long_output_the_end_is_kept(runtime: SubprocessRuntime) -> None:
    result = await runtime.run([sys.executable, "-c", "print('a' * 100_000 + 'end')"])
    assert len(result.stdout) == 1000
    assert result.stdout.endswith("aend\n")
    assert result.is_cut


async def test_program_that_does_not_exist_is_a_sandbox_error(runtime: SubprocessRuntime) -> None:
    with pytest.raises(SandboxError, match="no-such-program"):
        await runtime.run(["no-such-program"])


async def test_program_is_killed_with_its_children_at_the_deadline(runtime: SubprocessRuntime, tmp_path: Path) -> None:
    script = f"(sleep 0.6; touch {tmp_path}/canary) & sleep 60"
    with pytest.raises(TimeoutError):
        await runtime.run(["sh", "-c", script], timeout=0.2)
    await anyio.sleep(0.8)
    assert not (tmp_path / "canary").exists()


async def test_child_that_keeps_the_pipe_open_is_not_waited_for(runtime: SubprocessRuntime) -> None:
    with anyio.fail_after(10):
        result = await runtime.run(["sh", "-c", "sleep 60 & echo done"])
    assert result.stdout == "done\n"


async def test_program_that_does_not_read_its_input_is_no_error(runtime: SubprocessRuntime) -> None:
    result = await runtime.run(["true"], stdin=b"x" * 1_000_000)
    assert result.is_ok


async def test_files_are_written_and_read_below_the_working_directory(runtime: SubprocessRuntime) -> None:
    await runtime.write("data/in.txt", "text")
    result = await runtime.run(["sh", "-c", "cat data/in.txt > out.txt"])
    assert result.is_ok
    assert await runtime.read("out.txt") == b"text"
    with pytest.raises(SandboxError, match=r"no\.txt"):
        await runtime.read("no.txt")


async def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Programs().serving() as programs:
        runtime = SubprocessRuntime(SubprocessSettings(), programs)
        await runtime.start()
        result = await runtime.run(["sh", "-c", "echo $$"])
        assert len(os.listdir(await programs.folder())) == 1
        await runtime.stop()
        await runtime.stop()
        assert not os.listdir(await programs.folder())
    assert not os.listdir(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout), 0)
