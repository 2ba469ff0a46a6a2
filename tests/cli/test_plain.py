from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.dashboard.runs import idle_run
from tests.support.traces import make_trace
from vfx.cli import plain
from vfx.cli.plain import progress_line, report
from vfx.errors import ProviderError
from vfx.messages import Usage
from vfx.runner.evaluate import Run

pytestmark = pytest.mark.anyio


@pytest.fixture
async def run(tmp_path: Path) -> AsyncGenerator[Run]:
    with idle_run(tmp_path / "run") as run:
        run.phase = "running"
        yield run


async def test_a_line_tells_where_the_run_stands(run: Run) -> None:
    run.tally.add(make_trace("a", rewards={"r": 0.5}, usage=Usage(7, 2)))
    run.tally.add(make_trace("b", reply=None, error=ProviderError("gone")))
    line = progress_line(run)
    for part in ("2/20 done", "0 running", "1 errored", "reward 0.500", "9 tokens", "0 s"):
        assert part in line.split("  ")


async def test_waits_are_told_and_can_do_nothing_to_a_terminal(run: Run) -> None:
    waiting = run.environment.client.waiting
    waiting.calls, waiting.reason = 2, "429 from \x1b[31mh"
    assert progress_line(run).endswith("2 calls waiting: 429 from [31mh, at most 0 s more")


async def test_nothing_is_known_at_the_start(run: Run) -> None:
    assert "reward -  ? tokens" in progress_line(run)


async def test_lines_come_though_nothing_changes(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plain, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(plain, "LONGEST_PAUSE_S", 0.2)
    with anyio.move_on_after(1.2):
        await report(run)
    assert capfd.readouterr().err.count("vfx: 0/20 done") >= 2


def test_a_line_is_due_at_least_every_30_s() -> None:
    assert plain.LONGEST_PAUSE_S + 5 <= 30
