import threading
from decimal import Decimal
from fractions import Fraction
from typing import Any

import anyio
import pytest

from tests.support.traces import make_trace
from vfx.authoring.hooks import metric, reward
from vfx.authoring.task import Task
from vfx.runner.scoring import score
from vfx.trace.record import Score, Trace

pytestmark = pytest.mark.anyio


async def scored(task: Task) -> Trace:
    trace = make_trace(reply="four")
    await score(task, trace, {"trace": trace, "task": task, "runtime": None}, anyio.CapacityLimiter(4))
    return trace


async def test_rewards_and_metrics_are_recorded_under_their_names() -> None:
    class Sum(Task):
        @reward(weight=2)
        def right(self, trace: Trace) -> float:
            return trace.last_reply == "four"

        @metric
        async def chars(self, trace: Trace) -> int:
            return len(trace.last_reply)

    trace = await scored(Sum())
    assert trace.rewards == {"right": Score(1.0, 2)}
    assert trace.metrics == {"chars": 4.0}
    assert trace.reward == 2.0


async def test_a_mapping_gives_several_rewards() -> None:
    class Many(Task):
        @reward(weight=0.5)
        def parts(self) -> dict[str, float]:
            return {"form": 1, "content": 0.5}

    trace = await scored(Many())
    assert trace.rewards == {"form": Score(1.0, 0.5), "content": Score(0.5, 0.5)}


@pytest.mark.parametrize("value", [None, "1", float("nan"), float("inf"), [1.0], {"a": None}, Decimal(1)])
async def test_what_is_not_a_finite_number_is_an_error_and_never_zero(value: Any) -> None:
    class Odd(Task):
        @reward
        def odd(self) -> Any:
            return value

    trace = await scored(Odd())
    assert trace.rewards == {"odd": Score(None)}
    assert trace.reward is None
    [error] = trace.errors
    assert error.kind == "scoring"
    assert "number" in error.message


async def test_other_kinds_of_real_numbers_count() -> None:
    class Half(Task):
        @reward
        def half(self) -> Fraction:
            return Fraction(1, 2)

    assert (await scored(Half())).reward == 0.5


async def test_one_reward_that_fails_leaves_the_others() -> None:
    class Mixed(Task):
        @reward
        def broken(self) -> float:
            raise KeyError("answer")

        @reward
        def fine(self) -> float:
            return 1.0

    trace = await scored(Mixed())
    assert trace.rewards == {"broken": Score(None), "fine": Score(1.0)}
    assert [error.message for error in trace.errors] == ["reward 'broken': KeyError: 'answer'"]


async def test_plain_hooks_do_not_run_on_the_event_loop() -> None:
    main = threading.get_ident()

    class Where(Task):
        @reward
        def elsewhere(self) -> float:
            return threading.get_ident() != main

        @reward
        async def here(self) -> float:
            return threading.get_ident() == main

    assert (await scored(Where())).reward == 2.0
