import threading
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.support.traces import make_trace
from vfx.authoring.hooks import group_reward, metric, reward
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.runner.scoring import has_group_rewards, score, score_group
from vfx.trace.record import Score, Trace

pytestmark = pytest.mark.anyio


async def scored(task: Task) -> Trace:
    trace = make_trace(reply="four")
    await score(task, trace, {"trace": trace, "task": task, "runtime": None}, HookThreads())
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


async def test_a_name_that_two_rewards_give_is_an_error() -> None:
    class Twice(Task):
        @reward
        def form(self) -> float:
            return 1.0

        @reward
        def parts(self) -> dict[str, float]:
            return {"form": 0.0, "content": 1.0}

        @metric
        def parts_seen(self) -> dict[str, float]:
            return {"form": 3}

    trace = await scored(Twice())
    assert trace.rewards == {"form": Score(1.0), "parts": Score(None)}
    assert trace.metrics == {"form": 3.0}
    assert [error.message for error in trace.errors] == ["reward 'parts' gives form, as another reward has before it"]


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


class Group(Task):
    answer: Any = None

    @reward
    def own(self) -> float:
        return 1.0

    @group_reward(weight=0.5)
    def ranked(self, traces: list[Trace], task: Task) -> Any:
        assert task is self
        return self.answer


async def group_of(task: Task, count: int = 2) -> list[Trace]:
    traces = [make_trace(rollout=rollout) for rollout in range(count)]
    for trace in traces:
        await score(task, trace, {"trace": trace, "task": task, "runtime": None}, HookThreads())
        assert trace.rewards == {"own": Score(1.0), "ranked": Score(None, 0.5)}
        assert trace.reward is None
    await score_group(task, traces, HookThreads())
    return traces


async def test_a_group_reward_gives_each_rollout_its_number() -> None:
    assert has_group_rewards(Group())
    assert not has_group_rewards(Task())
    traces = await group_of(Group(answer=[1, 0]))
    assert [trace.reward for trace in traces] == [1.5, 1.0]
    assert [list(trace.rewards) for trace in traces] == [["own", "ranked"]] * 2


@pytest.mark.parametrize("answer", [[1.0], [1, 2, 3], [1, None], [1, float("nan")], 1, None, "12", {"a": 1, "b": 2}])
async def test_a_group_reward_that_does_not_give_one_number_for_each_is_an_error_of_all(answer: Any) -> None:
    for trace in await group_of(Group(answer=answer)):
        assert trace.rewards["ranked"] == Score(None, 0.5)
        assert trace.rewards["own"] == Score(1.0)
        assert trace.reward is None
        [error] = trace.errors
        assert error.kind == "scoring"
        assert error.message.startswith("group reward 'ranked' must give a")


class Scalar:
    """As numpy's booleans and torch's scalars: no number to Python."""

    shape = ()

    def item(self) -> bool:
        return True


async def test_scalars_of_array_libraries_count() -> None:
    class Odd(Task):
        @reward
        def odd(self) -> Any:
            return Scalar()

    assert (await scored(Odd())).reward == 1.0


async def test_what_asks_for_something_that_is_not_there_is_marked_and_not_run() -> None:
    class Late(Task):
        @reward
        def files(self, runtime: Any) -> float:
            raise AssertionError(runtime)

        @reward
        def text(self) -> float:
            return 1

    trace = make_trace()
    await score(Late(), trace, {"trace": trace, "task": Late()}, HookThreads())
    assert (trace.rewards, trace.errors) == ({"files": Score(None), "text": Score(1.0)}, [])
