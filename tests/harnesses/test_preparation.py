import sys
from pathlib import Path

import anyio
import pytest

from vfx.errors import RunError
from vfx.harnesses.command import Command

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VFX_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def counting(path: Path) -> tuple[tuple[str, ...], ...]:
    return (("sh", "-c", f"echo ran >> {path}; echo made > {{setup_dir}}/made"), ("test", "-e", "made"))


async def serve(harness: Command) -> Command:
    async with harness.serving():
        return harness


async def test_setup_runs_once_and_is_kept_for_other_runs(tmp_path: Path) -> None:
    for _ in range(2):
        await serve(Command(argv=("true",), setup_commands=counting(tmp_path / "log")))
    assert (tmp_path / "log").read_text() == "ran\n"


async def test_runs_that_start_together_set_up_once(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(serve, Command(argv=("true",), setup_commands=counting(tmp_path / "log")))
    assert (tmp_path / "log").read_text() == "ran\n"


async def test_failed_setup_ends_the_run_and_is_done_again(tmp_path: Path, data_dir: Path) -> None:
    failing = (("sh", "-c", f"echo ran >> {tmp_path}/log; touch half; echo no space >&2; exit 3"),)
    for _ in range(2):
        with pytest.raises(BaseExceptionGroup) as caught:
            await serve(Command(argv=("true",), setup_commands=failing))
        assert caught.group_contains(RunError, match="exit code 3: no space")
    assert (tmp_path / "log").read_text() == "ran\nran\n"


async def test_setup_is_bounded() -> None:
    with pytest.raises(RunError, match=r"--harness\.setup-timeout"):
        await serve(Command(argv=("true",), setup_commands=(("sleep", "60"),), setup_timeout=0.2))


async def test_version_is_the_first_line_and_on_record() -> None:
    harness = await serve(Command(argv=("true",), version_argv=(sys.executable, "-c", "print('agent 1.2\\nmore')")))
    assert harness.record()["program_version"] == "agent 1.2"


async def test_version_that_can_not_be_asked_ends_the_run() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await serve(Command(argv=("true",), version_argv=("no-such-program",)))
    assert caught.group_contains(RunError, match="no-such-program")
