"""What a run left in its folder, to be read again: its records by task, and which task of today each belongs to."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic_core import to_jsonable_python

from vfx.authoring.task import Task
from vfx.errors import ConfigError, Mistake
from vfx.runner.plan import Plan
from vfx.runner.store import ATTEMPTS, TRACES
from vfx.trace.reading import read_lines, read_trace
from vfx.trace.record import Trace

__all__ = ["Lookup", "RecordedRun"]

TaskIdentity = tuple[str, int]
"""A task's key, and its occurrence among equal tasks."""


class RecordedRun:
    """The records of a run. Only where they are is held in memory."""

    def __init__(self, folder: Path) -> None:
        """Find every record. May block: it reads everything.

        Raises:
            ConfigError: There is no record, or a whole line is none.
        """
        self.folder = folder
        self._path = folder / TRACES
        self.groups: dict[TaskIdentity, list[int]] = {}
        """Where the records of each task start, in the order of the tasks' first ones."""
        seen: set[tuple[str, int, int]] = set()
        for number, (offset, trace, _) in enumerate(_traces(self._path), start=1):
            identity = (trace.task.key, trace.task.occurrence)
            if (*identity, trace.rollout) in seen:
                raise ConfigError(Mistake("the same rollout is recorded twice", f"{self._path}: line {number}"))
            seen.add((*identity, trace.rollout))
            self.groups.setdefault(identity, []).append(offset)
        # What is broken is to be known before anything is written.
        for _ in self.attempts():
            pass
        if not seen:
            raise ConfigError(Mistake("has no finished rollout", str(self._path)))

    def read(self, identity: TaskIdentity) -> Sequence[Trace]:
        """The finished rollouts of one task. May block."""
        with self._path.open("rb") as file:
            lines: list[bytes] = []
            for offset in self.groups[identity]:
                file.seek(offset)
                lines.append(file.readline())
        return sorted((read_trace(line) for line in lines), key=lambda trace: trace.rollout)

    def read_at(self, offset: int) -> Trace:
        """The finished rollout whose record starts there. May block."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return read_trace(file.readline())

    def attempts(self) -> Iterator[tuple[Trace, bool]]:
        """The attempts that did not count but cost, each with whether it was one that was tried again."""
        path = self.folder / ATTEMPTS
        held: set[str] = set()
        for _, trace, line in _traces(path) if path.is_file() else ():
            reason = json.loads(line).get("reason")
            if reason == "pending":
                # It waits for its group, or is among the finished ones.
                held.add(trace.id)
            elif trace.id not in held:
                yield trace, reason == "retried"


def _traces(path: Path) -> Iterator[tuple[int, Trace, bytes]]:
    for number, (offset, line) in enumerate(read_lines(path), start=1):
        try:
            yield offset, read_trace(line), line
        except ValueError as error:
            raise ConfigError(Mistake(f"is no record: {error}", f"{path}: line {number}")) from error


class Lookup:
    """The tasks of today, found by what was recorded of them."""

    def __init__(self, plan: Plan) -> None:
        self._tasks = [task for task, _ in plan.tasks]
        self._by_key = {(task.key, occurrence): task for task, occurrence in plan.tasks}
        self._by_content: dict[frozenset[str], dict[tuple[str, int], Task]] = {}

    def find(self, trace: Trace) -> tuple[Task | None, str]:
        """The task that `trace` is a rollout of.

        A task that has more fields today than then is still the same when those it had are unchanged.

        Returns:
            None when there is none any more, with the reason.
        """
        recorded = _plain(trace.task.data)
        names = frozenset(recorded)
        task = self._by_key.get((trace.task.key, trace.task.occurrence))
        if task is not None:
            is_same = _content(task, names) == json.dumps(recorded, sort_keys=True)
            return (task, "") if is_same else (None, "its task has other data now")
        if names not in self._by_content:
            self._by_content[names] = self._index(names)
        task = self._by_content[names].get((json.dumps(recorded, sort_keys=True), trace.task.occurrence))
        return (task, "") if task is not None else (None, "its task is no longer there, or has other data now")

    def _index(self, names: frozenset[str]) -> dict[tuple[str, int], Task]:
        index: dict[tuple[str, int], Task] = {}
        seen: Counter[str] = Counter()
        for task in self._tasks:
            content = _content(task, names)
            index[content, seen[content]] = task
            seen[content] += 1
        return index


def _content(task: Task, names: frozenset[str]) -> str:
    return json.dumps({name: value for name, value in _plain(task.data).items() if name in names}, sort_keys=True)


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """As it reads back from a record."""
    return cast("dict[str, Any]", json.loads(json.dumps(dict(data), default=to_jsonable_python)))
