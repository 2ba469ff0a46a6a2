from pathlib import Path
from typing import Any

import pytest

from vfx.authoring.registry import harness_class, taskset_class
from vfx.authoring.task import Task, TaskResources, TaskTimeouts
from vfx.cli.resolve import resolve
from vfx.runner.config import EvalConfig
from vfx.runner.saved_config import to_toml


def make_config(*, timeout: dict[str, Any] | None = None, task_timeout: dict[str, Any] | None = None) -> EvalConfig:
    taskset = taskset_class("arithmetic").model_validate({"task": {"timeout": task_timeout or {}}})
    return EvalConfig.model_validate({"taskset": taskset, "harness": harness_class("chat")(), "timeout": timeout or {}})


@pytest.mark.parametrize(
    ("every_task", "given", "own", "expected"),
    [
        (None, None, None, 600.0),
        (None, None, 5.0, 5.0),
        (None, 7.0, 5.0, 7.0),
        (None, 600.0, 5.0, 600.0),
        (None, "none", 5.0, None),
        (9.0, 7.0, 5.0, 9.0),
    ],
)
def test_a_bound_that_was_given_beats_the_tasks_own_which_beats_the_default(
    every_task: float | None, given: float | str | None, own: float | None, expected: float | None
) -> None:
    config = make_config(
        timeout={} if given is None else {"scoring": None if given == "none" else given},
        task_timeout={"scoring": every_task},
    )
    task = Task(timeout=TaskTimeouts(scoring=own))
    assert config.seconds_for("scoring", task) == expected


def test_a_saved_configuration_gives_no_bound_that_was_not_given() -> None:
    text = to_toml(make_config(timeout={"scoring": 7}))
    assert "scoring = 7.0" in text
    assert "finalize" not in text.partition("[timeout]")[2].partition("[retries]")[0]


def test_bounds_are_given_by_flags() -> None:
    argv = ("arithmetic", "--client.type", "scripted", "--timeout.setup", "3", "--taskset.task.timeout.finalize", "4")
    config = resolve(argv, {}).config
    own = Task(timeout=TaskTimeouts(setup=1, rollout=2, finalize=1))
    assert [config.seconds_for(stage, own) for stage in ("setup", "rollout", "finalize", "scoring")] == [3, 2, 4, 600]


def test_rewards_from_outside_are_saved_and_read_back(tmp_path: Path) -> None:
    rewards = ("--taskset.task.rewards.correct.weight", "2", "--taskset.task.rewards.also.fn", "checks.py:also")
    config = resolve(("arithmetic", "--client.type", "scripted", *rewards), {}).config
    (tmp_path / "config.toml").write_text(to_toml(config))
    again = resolve(("@", str(tmp_path / "config.toml")), {}).config
    assert again == config
    assert again.taskset.task.rewards["also"].fn == "checks.py:also"


@pytest.mark.parametrize(
    ("options", "own", "expected"),
    [
        ((), None, None),
        ((), 2.0, 2.0),
        (("--harness.runtime.memory", "3"), 2.0, 3.0),
        (("--harness.runtime.memory", "none"), 2.0, None),
        (("--harness.runtime.memory", "3", "--taskset.task.resources.memory", "4"), 2.0, 4.0),
    ],
)
def test_resources_are_chosen_as_bounds_on_time_are(
    options: tuple[str, ...], own: float | None, expected: float | None
) -> None:
    config = resolve(("arithmetic", "--client.type", "scripted", *options), {}).config
    assert config.runtime_for(Task(resources=TaskResources(memory=own))).memory == expected
