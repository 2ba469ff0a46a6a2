"""What a replay has changed: the numbers of the same rollouts as they were and as they are now."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vfx.runner.summary import Tally
from vfx.trace.record import TaskRef, Trace

__all__ = ["Change", "Changes", "label"]

MOST_CHANGED = 10
"""How many of the rollouts that changed most are kept to be shown."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A rollout whose numbers are other ones now."""

    size: float
    """How far its reward has moved; 1 where it had, or has, none."""
    task: str
    """What people call the task."""
    rollout: int
    old: float | None = field(compare=False)
    """Its reward then; None when it was errored."""
    new: float | None = field(compare=False)


@dataclass
class Changes:
    """The rollouts that are replayed, and those that can't be."""

    before: Tally = field(default_factory=Tally)
    """The numbers of the rollouts that are replayed, as they were."""
    left_out: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Rollouts that could not be replayed: by the reason, how many of which task."""
    changed: int = 0
    """Rollouts whose rewards, metrics or errors are other ones now."""
    _most: list[Change] = field(default_factory=list[Change])
    """Those whose reward changed most; a heap."""

    def leave_out(self, reason: str, traces: Sequence[Trace]) -> None:
        """Note rollouts of one task that can't be replayed."""
        self.left_out.setdefault(reason, Counter())[label(traces[0].task)] += len(traces)

    def add(self, old: Trace, new: Trace) -> None:
        """Compare one rollout."""
        self.before.add(old)
        if _numbers(old) == _numbers(new):
            return
        self.changed += 1
        then, now = old.reward, new.reward
        size = float(then is not now) if then is None or now is None else abs(now - then)
        if size:
            change = Change(size, label(new.task), new.rollout, then, now)
            (heapq.heappush if len(self._most) < MOST_CHANGED else heapq.heappushpop)(self._most, change)

    def most_changed(self) -> Sequence[Change]:
        """The rollouts that changed most, the greatest change first."""
        return sorted(self._most, key=lambda change: (-change.size, change.task, change.rollout))

    def to_record(self, after: Tally) -> dict[str, Any]:
        """As plain data.

        Args:
            after: The numbers of the same rollouts now.
        """
        return {
            "changed": self.changed,
            "left_out": {reason: tasks.total() for reason, tasks in self.left_out.items()},
            "left_out_tasks": {reason: list(tasks) for reason, tasks in self.left_out.items()},
            "differences": list(self._differences(after)),
            "most_changed": [
                {"task": c.task, "rollout": c.rollout, "old": c.old, "new": c.new} for c in self.most_changed()
            ],
        }

    def _differences(self, after: Tally) -> Iterator[dict[str, Any]]:
        """The old and the new mean of the reward, of each part of it, and of each metric."""
        old, new = self.before.to_record(), after.to_record()
        yield _difference("reward", "", old["reward"], new["reward"])
        for kind in ("reward", "metric"):
            then, now = old[f"{kind}s"], new[f"{kind}s"]
            for name in {**then, **now}:
                yield _difference(kind, name, then.get(name, {}), now.get(name, {}))


def _difference(kind: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    then, now = old.get("mean"), new.get("mean")
    difference = None if then is None or now is None else now - then
    return {"kind": kind, "name": name, "old": then, "new": now, "difference": difference}


def _numbers(trace: Trace) -> tuple[object, ...]:
    scores = {name: reward.score for name, reward in trace.rewards.items()}
    return trace.reward, scores, trace.metrics, [error.message for error in trace.errors]


def label(task: TaskRef) -> str:
    """What people call a task."""
    return task.id or task.name or task.key
