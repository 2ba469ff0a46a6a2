from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.dashboard.runs import idle_run
from tests.support.traces import make_trace
from vfx.cli.summary import summary_lines
from vfx.errors import HarnessError, ProviderError
from vfx.messages import Usage
from vfx.runner.evaluate import Run
from vfx.trace.record import ErrorRecord, SideCall, Span

pytestmark = pytest.mark.anyio


@pytest.fixture
async def run(tmp_path: Path) -> AsyncGenerator[Run]:
    with idle_run(tmp_path / "run") as run:
        yield run


def lines_of(run: Run) -> list[str]:
    return summary_lines({**run.to_record(), "run_dir": "outputs/run"})


async def test_each_cause_has_its_count_an_example_and_what_helps(run: Run) -> None:
    for number in range(3):
        error = ProviderError(f"HTTP 503 from h (after 6 attempts): busy {number}")
        run.tally.add(make_trace(f"t{number}", reply=None, error=error))
    run.tally.add(make_trace("u", reply=None, error=HarnessError("harness: ValueError: no")))
    text = "\n".join(lines_of(run))
    assert "errors      3 x provider: HTTP 503 from h (after 6 attempts): busy 0\n" in text
    assert "such as t0#0; try more --client.max-retries, or" in text
    assert "            1 x harness: ValueError: no\n" in text


async def test_many_causes_do_not_fill_the_screen(run: Run) -> None:
    for letter in "abcdefgh":
        run.tally.add(make_trace(letter, reply=None, error=ProviderError(f"{letter} " * 300)))
    lines = lines_of(run)
    assert sum(" x provider: " in line for line in lines) == 5
    assert any("3 with 3 other causes" in line for line in lines)


async def test_everything_fits_in_80_columns(run: Run) -> None:
    words = " ".join(["several words"] * 40)
    for number in range(4):
        trace = make_trace(str(number), rollout=number, rewards={"right" * 20: 1.0, "style": 0.25})
        trace.timing = {name: Span(0.0, 99.9) for name in ("boot", "setup", "agent", "finalize", "scoring", "total")}
        trace.calls[0].first_byte = 12.5
        trace.calls[0].usage = Usage(10**9, 10**9) if number else Usage()
        trace.stop_condition = "max_total_tokens" + "x" * number
        run.tally.add(trace)
        run.tally.add(make_trace(f"e{number}", reply=None, error=ProviderError(words + "x" * number)))
    lines = lines_of(run)
    assert max(map(len, lines)) <= 80
    assert any("3 turns without a count" in line or "1 turns without a count" in line for line in lines)


async def test_latency_and_stages_are_told(run: Run) -> None:
    trace = make_trace(rewards={"r": 1.0})
    trace.calls[0].first_byte = 0.25
    trace.timing = {"agent": Span(0.0, 2.0), "total": Span(0.0, 3.0)}
    run.tally.add(trace)
    text = "\n".join(lines_of(run))
    assert "latency     first byte  p50  250 ms  p90  250 ms  p99  250 ms" in text
    assert "rollout     p50  3.00 s" in text
    assert "stages      mean  agent 2.00 s" in text


async def test_pass_at_k_is_told_where_there_are_several_rollouts(run: Run) -> None:
    run.tally.rollouts_per_task = 2
    run.tally.add(make_trace(rollout=0, rewards={"r": 1.0}))
    run.tally.add(make_trace(rollout=1, rewards={"r": 0.0}))
    assert "            pass@1 0.500  pass@2 1.000" in lines_of(run)


async def test_a_run_of_single_rollouts_has_only_its_mean(run: Run) -> None:
    run.tally.add(make_trace(rewards={"r": 1.0}))
    assert "pass@" not in "\n".join(lines_of(run))


async def test_tokens_of_side_models_are_told_apart(run: Run) -> None:
    trace = make_trace(rewards={"r": 1.0})
    error = ErrorRecord("scoring", "unreadable")
    trace.side_calls += [
        SideCall("judge", "j", "m", "here", Span(0.0, 1.0), (), usage=Usage(1000, 20)),
        SideCall("judge", "j", "m", "here", Span(0.0, 1.0), (), usage=Usage(7, 1), error=error),
        SideCall("user", "u", "m", "here", Span(0.0, 1.0), ()),
    ]
    run.note(trace)
    lines = lines_of(run)
    text = " ".join(" ".join(lines).split())
    assert "5 in 1 out in 1 turns" in text
    assert "1,000 in 20 out in 1 calls of judge models, not counted above; 1 came to nothing, billed 7 in 1 out" in text
    assert "unknown in unknown out in 1 calls of user models, not counted above; 1 without a count" in text
    assert max(map(len, lines)) <= 80


async def test_texts_of_others_can_do_nothing_to_a_terminal(run: Run) -> None:
    run.tally.add(make_trace("\x1b[2J", reply=None, error=ProviderError("a\x1b[31m\rb")))
    assert "\x1b" not in "".join(lines_of(run))
    assert "\r" not in "".join(lines_of(run))
