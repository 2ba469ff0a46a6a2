"""Which rollouts a run consists of."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from re import fullmatch
from typing import Any

from vfx.authoring.configured import configure_tasks
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.toolset import named_toolsets
from vfx.errors import ConfigError, Mistake
from vfx.runner.config import EvalConfig
from vfx.runner.tasks import load_tasks
from vfx.trace.record import Trace

__all__ = ["Identity", "Plan", "PlannedRollout", "group_mistakes", "identity_of", "make_plan"]

_RANGE = r"(\d*):(\d*)"

Identity = tuple[str, int, int]
"""A rollout across launches: the task's key, its occurrence among equal tasks, the number of the rollout."""


def identity_of(trace: Trace) -> Identity:
    """Which rollout a trace is an attempt at."""
    return trace.task.key, trace.task.occurrence, trace.rollout


@dataclass(frozen=True, slots=True)
class PlannedRollout:
    """One rollout to run; the three fields are its identity."""

    task: Task
    occurrence: int
    """0 for the first task with this key, 1 for the next equal one, ..."""
    rollout: int
    """Number among the rollouts of its task, from 0."""

    @property
    def identity(self) -> Identity:
        """The same in every launch of a run."""
        return self.task.key, self.occurrence, self.rollout


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen tasks, and how many rollouts of each."""

    tasks: Sequence[tuple[Task, int]]
    """Each with its occurrence among equal tasks."""
    num_rollouts: int

    def __len__(self) -> int:
        return len(self.tasks) * self.num_rollouts

    def __iter__(self) -> Iterator[PlannedRollout]:
        for task, occurrence in self.tasks:
            for rollout in range(self.num_rollouts):
                yield PlannedRollout(task, occurrence, rollout)


def make_plan(config: EvalConfig) -> Plan:
    """Load the tasks and choose among them. May block: it runs the taskset's own code.

    Raises:
        ConfigError: The taskset can't be loaded, is empty, or nothing is left of it.
    """
    taskset = config.taskset
    tasks = _load(config)
    if not tasks:
        raise ConfigError(Mistake("it has no tasks", taskset.id))
    chosen = _select(tasks, config)
    if not chosen:
        raise ConfigError(Mistake(f"no task is left of {len(tasks)}", "--include/--exclude"))
    _check_users(chosen, taskset)
    _check_toolsets(chosen, taskset)
    configure_tasks(chosen, taskset.task)
    seen: Counter[str] = Counter()
    numbered: list[tuple[Task, int]] = []
    for task in chosen:
        numbered.append((task, seen[task.key]))
        seen[task.key] += 1
    return Plan(numbered, config.num_rollouts)


def _check_users(tasks: Iterable[Task], taskset: Taskset[Any]) -> None:
    """Refuse tasks with another user than the one that the taskset lets people configure.

    Raises:
        ConfigError: There are some.
    """
    known = taskset.task_type.user
    for owner in dict.fromkeys(type(task) for task in tasks):
        if owner.user not in (None, known):
            name = type(taskset).__name__
            what = f"{owner.__name__} has a user that {name} does not know of"
            raise ConfigError(Mistake(what, taskset.id, f"write class {name}(vfx.Taskset[{owner.__name__}])"))


def _check_toolsets(tasks: Iterable[Task], taskset: Taskset[Any]) -> None:
    """Refuse tasks with tool servers that the taskset doesn't let people configure.

    Raises:
        ConfigError: There are some.
    """
    known = named_toolsets("", taskset.task_type.toolsets)
    for owner in dict.fromkeys(type(task) for task in tasks):
        for server, toolset in named_toolsets("", owner.toolsets).items():
            if known.get(server) is not toolset:
                name = type(taskset).__name__
                what = f"{owner.__name__} has a tool server {server!r} that {name} does not know of"
                raise ConfigError(Mistake(what, taskset.id, f"write class {name}(vfx.Taskset[{owner.__name__}])"))


def group_mistakes(plan: Plan) -> list[Mistake]:
    """What is wrong with a plan whose rewards compare rollouts when there is only one of each task."""
    if plan.num_rollouts > 1:
        return []
    names = dict.fromkeys(hook.name for task, _ in plan.tasks for hook in task.hooks("group_reward"))
    return [Mistake(f"group reward {name!r} compares the rollouts of a task", "-r", "such as -r 4") for name in names]


def _load(config: EvalConfig) -> Sequence[Task]:
    return list(islice(load_tasks(config.taskset), _tasks_needed(config)))


def _tasks_needed(config: EvalConfig) -> int | None:
    """How many tasks have to be looked at; None = all that there are.

    Raises:
        ConfigError: They have no end, and what was asked for has none either.
    """
    selectors = (*config.include, *config.exclude)
    if not config.taskset.infinite:
        return None if selectors or config.shuffle else config.num_tasks
    mistakes: list[Mistake] = []
    what = f"{config.taskset.id or type(config.taskset).__name__} gives tasks without end"
    if config.num_tasks is None:
        mistakes.append(Mistake(f"{what}, so their number is needed", "-n", "such as -n 100"))
    if config.shuffle:
        mistakes.append(Mistake(f"{what}, which can't be shuffled", "--shuffle", "leave it out"))
    ranges = [fullmatch(_RANGE, selector) for selector in selectors]
    for selector, bounds in zip(selectors, ranges, strict=True):
        if bounds is None:
            hint = "such as 10:20"
            mistakes.append(Mistake(f"{what}; only a range of their indices selects among them", selector, hint))
    if mistakes:
        raise ConfigError(*mistakes)
    # Beyond the last index that a range names, tasks are either all chosen or all left out.
    named = (int(index) for bounds in ranges if bounds is not None for index in bounds.groups() if index)
    return max(named, default=0) + (config.num_tasks or 0)


def _select(tasks: Sequence[Task], config: EvalConfig) -> Sequence[Task]:
    chosen = [
        task
        for index, task in enumerate(tasks)
        if (not config.include or _matches(config.include, task, index)) and not _matches(config.exclude, task, index)
    ]
    if config.shuffle:
        random.Random(config.seed).shuffle(chosen)  # noqa: S311 - an order, not a secret
    return chosen[: config.num_tasks]


def _matches(selectors: Sequence[str], task: Task, index: int) -> bool:
    for selector in selectors:
        if bounds := fullmatch(_RANGE, selector):
            start, end = bounds.groups()
            if int(start or 0) <= index < (int(end) if end else index + 1):
                return True
        elif selector in (task.key, task.id) or fnmatchcase(task.name or task.id or "", selector):
            return True
    return False
