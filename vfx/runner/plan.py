"""Which rollouts a run consists of."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from re import fullmatch

from vfx.authoring.task import Task
from vfx.errors import ConfigError, Mistake
from vfx.runner.config import EvalConfig

__all__ = ["Plan", "PlannedRollout", "make_plan"]


@dataclass(frozen=True, slots=True)
class PlannedRollout:
    """One rollout to run; the three fields are its identity."""

    task: Task
    occurrence: int
    """0 for the first task with this key, 1 for the next equal one, ..."""
    rollout: int
    """Number among the rollouts of its task, from 0."""


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
    try:
        is_whole = bool(config.include or config.exclude or config.shuffle)
        tasks = list(taskset.load() if is_whole else islice(taskset.load(), config.num_tasks))
    except Exception as error:
        raise ConfigError(
            Mistake(f"its tasks can't be loaded: {type(error).__name__}: {error}", taskset.id or type(taskset).__name__)
        ) from error
    if not tasks:
        raise ConfigError(Mistake("it has no tasks", taskset.id))
    if wrong := next((task for task in tasks if not isinstance(task, Task)), None):
        raise ConfigError(Mistake(f"load() must give vfx.Task instances, got {type(wrong).__name__}", taskset.id))
    chosen = _select(tasks, config)
    if not chosen:
        raise ConfigError(Mistake(f"no task is left of {len(tasks)}", "--include/--exclude"))
    seen: Counter[str] = Counter()
    numbered: list[tuple[Task, int]] = []
    for task in chosen:
        numbered.append((task, seen[task.key]))
        seen[task.key] += 1
    return Plan(numbered, config.num_rollouts)


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
        if bounds := fullmatch(r"(\d*):(\d*)", selector):
            start, end = bounds.groups()
            if int(start or 0) <= index < (int(end) if end else index + 1):
                return True
        elif selector in (task.key, task.id) or fnmatchcase(task.name or task.id or "", selector):
            return True
    return False
