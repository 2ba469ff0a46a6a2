from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar

import pytest

from vfx.authoring.harness import Harness
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.errors import ConfigError
from vfx.runner.config import EvalConfig
from vfx.runner.plan import make_plan


class Letters(Taskset[Task]):
    text: str = "abcdef"

    def load(self) -> Iterator[Task]:
        for letter in self.text:
            yield Task(prompt=letter, id=letter, name=f"letter-{letter}")


def chosen(text: str = "abcdef", **options: Any) -> str:
    plan = make_plan(EvalConfig(taskset=Letters(text=text), harness=Harness(), **options))
    return "".join(str(task.id) for task, _ in plan.tasks)


def test_every_task_has_all_its_rollouts() -> None:
    plan = make_plan(EvalConfig(taskset=Letters(), harness=Harness(), num_tasks=2, num_rollouts=3))
    assert [(p.task.id, p.rollout) for p in plan] == [(i, r) for i in "ab" for r in range(3)]
    assert len(plan) == 6


def test_equal_tasks_keep_their_own_rollouts() -> None:
    plan = make_plan(EvalConfig(taskset=Letters(text="aab"), harness=Harness()))
    assert [(task.id, occurrence) for task, occurrence in plan.tasks] == [("a", 0), ("a", 1), ("b", 0)]


def test_only_as_many_tasks_as_asked_for_are_loaded() -> None:
    class Endless(Taskset[Task]):
        def load(self) -> Iterator[Task]:
            while True:
                yield Task(prompt="x")

    assert len(make_plan(EvalConfig(taskset=Endless(), harness=Harness(), num_tasks=3))) == 3


def test_shuffling_is_the_same_for_the_same_seed() -> None:
    assert chosen(shuffle=True, seed=1) == chosen(shuffle=True, seed=1) != chosen(shuffle=True, seed=2)
    assert sorted(chosen(shuffle=True)) == list("abcdef")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": ("b", "d")}, "bd"),
        ({"include": ("letter-[a-c]",)}, "abc"),
        ({"include": ("1:3",)}, "bc"),
        ({"include": ("4:",)}, "ef"),
        ({"exclude": (":4", "f")}, "e"),
        ({"include": (":3",), "exclude": ("a",), "num_tasks": 1}, "b"),
    ],
)
def test_tasks_are_selected_by_id_pattern_and_range(options: dict[str, Any], expected: str) -> None:
    assert chosen(**options) == expected


def test_a_selection_that_leaves_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no task is left of 6"):
        chosen(include=("z",))


def test_a_taskset_that_fails_to_load_is_a_mistake_with_its_cause() -> None:
    class Broken(Taskset[Task]):
        def load(self) -> Iterator[Task]:
            raise FileNotFoundError("data.jsonl")

    with pytest.raises(ConfigError, match=r"FileNotFoundError: data\.jsonl"):
        make_plan(EvalConfig(taskset=Broken(), harness=Harness()))


class Endless(Taskset[Task]):
    infinite: ClassVar[bool] = True

    def load(self) -> Iterator[Task]:
        for number in count():
            yield Task(prompt=str(number), id=str(number))


def endless(**options: Any) -> list[str | None]:
    config = EvalConfig(taskset=Endless(id="endless"), harness=Harness(), **options)
    return [task.id for task, _ in make_plan(config).tasks]


def test_a_taskset_without_end_is_read_as_far_as_was_asked_for() -> None:
    assert endless(num_tasks=3) == ["0", "1", "2"]
    assert endless(num_tasks=2, include=("10:20",)) == ["10", "11"]
    assert endless(num_tasks=5, include=("1:3", "7:8")) == ["1", "2", "7"]
    assert endless(num_tasks=2, include=("5:",)) == ["5", "6"]
    assert endless(num_tasks=3, exclude=("1:3", "4:5")) == ["0", "3", "5"]
    assert endless(num_tasks=3, exclude=("2:",)) == ["0", "1"]


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        endless(shuffle=True, include=("7",), exclude=("add-*", "1:2"))
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "-n: endless gives tasks without end, so their number is needed (such as -n 100)",
        "--shuffle: endless gives tasks without end, which can't be shuffled (leave it out)",
        "7: endless gives tasks without end; only a range of their indices selects among them (such as 10:20)",
        "add-*: endless gives tasks without end; only a range of their indices selects among them (such as 10:20)",
    ]
