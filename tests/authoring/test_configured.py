from pathlib import Path
from typing import Any

import pytest

from tests.support.traces import make_trace
from vfx.authoring.configured import TaskSettings, configure_tasks
from vfx.authoring.hooks import HookKind, group_reward, metric, reward, stop
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import ConfigError
from vfx.runner.scoring import score
from vfx.trace.record import Score, Trace

pytestmark = pytest.mark.anyio

CHECKS = """
import vfx

def exact(trace, task):
    return trace.last_reply == task.prompt

async def long(trace):
    return len(trace.last_reply) > 2

def best(traces):
    return [1.0 for _ in traces]

def misnamed(trase):
    return 0

@vfx.reward(weight=3, isolate=True)
def apart(trace):
    return 1
"""


class Word(Task):
    @reward(weight=2)
    def right(self) -> float:
        return 1.0

    @group_reward
    def ranked(self, traces: list[Trace]) -> list[float]:
        return [0.0 for _ in traces]

    @metric
    def chars(self, trace: Trace) -> float:
        return len(trace.last_reply)

    @stop
    def done(self) -> bool:
        return False


class Other(Task):
    pass


@pytest.fixture
def checks(tmp_path: Path) -> str:
    path = tmp_path / "my_checks.py"
    path.write_text(CHECKS)
    return str(path)


def configured(task: Task, **settings: Any) -> Task:
    configure_tasks([task], TaskSettings(**settings))
    return task


def names(task: Task, kind: HookKind) -> list[tuple[str, float]]:
    return [(hook.name, hook.weight) for hook in task.hooks(kind)]


async def test_functions_from_a_file_are_called_by_the_names_of_their_parameters(checks: str) -> None:
    task = configured(
        Word(prompt="four"),
        rewards={"exact": {"fn": f"{checks}:exact", "weight": 0.5}},
        metrics={"long": {"fn": f"{checks}:long"}},
        stops={"long": {"fn": f"{checks}:long"}},
    )
    trace = make_trace(reply="four")
    await score(task, trace, {"trace": trace, "task": task, "runtime": None}, HookThreads())
    assert trace.rewards == {"right": Score(1.0, 2), "exact": Score(1.0, 0.5), "ranked": Score(None, 1.0)}
    assert trace.metrics == {"chars": 4.0, "long": 1.0}
    assert names(task, "stop") == [("done", 1.0), ("long", 1.0)]


def test_without_fn_only_the_weight_changes() -> None:
    task = configured(Word(), rewards={"right": {"weight": 0}, "ranked": {"weight": 7}})
    assert names(task, "reward") == [("right", 0.0)]
    assert names(task, "group_reward") == [("ranked", 7.0)]
    assert Word().hooks("reward")[0].weight == 2


def test_a_function_takes_the_place_of_the_hook_of_its_name(checks: str) -> None:
    task = configured(Word(), rewards={"right": {"fn": f"{checks}:exact"}, "ranked": {"fn": f"{checks}:exact"}})
    assert names(task, "reward") == [("right", 2.0), ("ranked", 1.0)]
    assert names(task, "group_reward") == []


def test_a_function_that_asks_for_traces_compares_rollouts(checks: str) -> None:
    task = configured(Other(), rewards={"best": {"fn": f"{checks}:best"}})
    assert names(task, "reward") == []
    assert names(task, "group_reward") == [("best", 1.0)]


def test_a_mark_on_the_function_counts(checks: str) -> None:
    [hook] = configured(Other(), rewards={"apart": {"fn": f"{checks}:apart"}}).hooks("reward")
    assert (hook.isolate, hook.weight, hook.is_method) == (True, 3, False)


def test_every_mistake_is_named_with_what_may_have_been_meant(checks: str) -> None:
    settings = TaskSettings.model_validate(
        {
            "rewards": {
                "rihgt": {"weight": 1},
                "right": {},
                "a": {"fn": f"{checks}:exakt"},
                "b": {"fn": "nowhere.py:exact"},
                "c": {"fn": f"{checks}:misnamed"},
                "d": {"fn": "exact"},
            },
            "stops": {"e": {"fn": "no_such_module_here:f"}},
        }
    )
    with pytest.raises(ConfigError) as caught:
        configure_tasks([Other(), Word()], settings)
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        f"taskset.task.rewards.a.fn: {checks!r} has no function 'exakt' (did you mean exact?)",
        "taskset.task.rewards.b.fn: there is no file 'nowhere.py'",
        "taskset.task.rewards.c.fn: misnamed asks for trase; "
        "a reward hook may ask for: judge, runtime, state, task, trace",
        "taskset.task.rewards.d.fn: expected path.py:name or module:name, found 'exact'",
        "taskset.task.stops.e.fn: module 'no_such_module_here' can't be loaded: "
        "ModuleNotFoundError: No module named 'no_such_module_here'",
        "taskset.task.rewards.rihgt: no task has a reward 'rihgt'; a new one needs fn (did you mean right?)",
        "taskset.task.rewards.right: says nothing (give a weight, or fn to replace it)",
    ]
