from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.dashboard.runs import idle_run
from tests.support.traces import make_trace
from vfx.dashboard.watch import Watch
from vfx.errors import ProviderError
from vfx.messages import Usage
from vfx.runner.evaluate import Run
from vfx.trace.record import Call, Span


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


pytestmark = pytest.mark.anyio


@pytest.fixture
async def run(tmp_path: Path) -> AsyncGenerator[Run]:
    with idle_run(tmp_path / "run") as run:
        run.tally.started = 1000.0
        yield run


async def test_rates_and_the_time_left_follow_what_was_done(run: Run) -> None:
    clock = Clock()
    watch = Watch(run, clock)
    assert watch.snapshot().rate is None
    clock.now += 10
    for number in range(5):
        run.tally.add(make_trace(str(number), rewards={"r": 1.0}, usage=Usage(30, 10)))
    seen = watch.snapshot()
    assert (seen.rate, seen.token_rate, seen.remaining_seconds) == (0.5, 20.0, 30.0)
    assert (seen.done, seen.seconds) == (5, 10.0)


async def test_what_earlier_launches_did_is_not_this_ones_speed(run: Run) -> None:
    for number in range(10):
        run.tally.add(make_trace(str(number), rewards={"r": 1.0}))
    clock = Clock()
    watch = Watch(run, clock)
    watch.snapshot()
    clock.now += 4
    assert watch.snapshot().rate is None
    run.tally.add(make_trace("x", rewards={"r": 1.0}))
    assert watch.snapshot().rate == 0.25


async def test_the_rate_is_that_of_the_last_minute(run: Run) -> None:
    clock = Clock()
    watch = Watch(run, clock)
    run.tally.planned = 10_000
    for second in range(200):
        clock.now = 1000.0 + second
        for number in range(1 if second < 100 else 4):
            run.tally.add(make_trace(f"{second}.{number}", reply=None, error=ProviderError("gone")))
        watch.snapshot()
    assert watch.snapshot().rate == pytest.approx(4.0)


async def test_rollouts_under_way_are_counted_by_stage_and_their_tokens_are_told(run: Run) -> None:
    clock = Clock()
    first, second = make_trace("a", usage=Usage(7, 2)), make_trace("b", reply=None)
    first.timing = {"boot": Span(990.0, 991.0), "agent": Span(991.0)}
    first.calls[0].span = Span(992.0, 995.0)
    with run.watched(first), run.watched(second):
        watch = Watch(run, clock)
        seen = watch.snapshot()
        assert seen.stages == {"agent": 1, "starting": 1}
        assert (seen.usage.input_tokens, seen.usage.output_tokens) == (7, 2)
        one, two = watch.rows(0, 10)
    assert (one.name, one.stage, one.turns, one.tokens) == ("a#0", "agent", 1, 9)
    assert (one.seconds, one.idle, one.reply) == (10.0, 5.0, "four")
    assert (two.stage, two.turns, two.tokens) == ("starting", 0, None)
    assert watch.snapshot().stages == {}


async def test_new_turns_are_seen_and_none_is_counted_twice(run: Run) -> None:
    trace = make_trace("a", usage=Usage(7, 2))
    with run.watched(trace):
        watch = Watch(run, Clock())
        watch.snapshot()
        nodes = trace.graph.commit([], [])
        trace.calls.append(Call("m", {}, "here", Span(0.0, 1.0), nodes=nodes, usage=Usage(10, 1)))
        for _ in range(3):
            assert watch.snapshot().usage.input_tokens == 17


async def test_only_the_asked_for_rows_are_made(run: Run) -> None:
    traces = [make_trace(str(number)) for number in range(5)]
    for trace in traces:
        run.running[trace.id] = trace
    assert [row.name for row in Watch(run, Clock()).rows(1, 2)] == ["1#0", "2#0"]


async def test_waits_of_the_client_are_seen(run: Run) -> None:
    waiting = run.environment.client.waiting
    watch = Watch(run, Clock())
    assert watch.snapshot().wait is None
    waiting.calls, waiting.until, waiting.reason = 3, 1008.0, "429 from h"
    wait = watch.snapshot().wait
    assert wait is not None
    assert (wait.calls, wait.seconds, wait.reason) == (3, 8.0, "429 from h")


async def test_errors_are_seen_by_cause(run: Run) -> None:
    run.tally.add(make_trace(reply=None, error=ProviderError("HTTP 503 from h\x1b[2J")))
    seen = Watch(run, Clock()).snapshot()
    assert seen.kinds == {"provider": 1}
    assert seen.errors[0].example == "HTTP 503 from h [2J"
