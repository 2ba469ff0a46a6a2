"""The rollouts of one task together: group rewards compare them once all have ended."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import ScoringError
from vfx.runner.plan import Plan, PlannedRollout, identity_of
from vfx.runner.resume import Earlier, TaskIdentity
from vfx.runner.scoring import score_group
from vfx.runner.state import restore_state
from vfx.trace.record import ErrorRecord, Trace

__all__ = ["Episode", "Episodes"]

SMALLEST_GROUP = 2


@dataclass(slots=True)
class Episode:
    """The group of one task's rollouts."""

    task: Task
    identity: TaskIdentity
    left: int
    """Rollouts that have not ended."""
    traces: list[Trace] = field(default_factory=list[Trace])
    """Of those that have ended without an error; an errored one is not compared with others."""

    async def score(self, threads: HookThreads, seconds: float | None) -> list[Trace]:
        """Compare the rollouts; fewer than two have no group reward.

        Args:
            threads: Where plain hooks run.
            seconds: Bound on all group rewards; None = unbounded.

        Returns:
            Their traces, by the number of the rollout.
        """
        traces = sorted(self.traces, key=lambda trace: trace.rollout)
        if len(traces) < SMALLEST_GROUP:
            return traces
        for trace in traces:
            # One of an earlier launch was read from its record. What no longer fits stays as plain data.
            with suppress(ScoringError):
                restore_state(self.task, trace)
        with anyio.move_on_after(seconds) as deadline:
            await score_group(self.task, traces, threads)
        if deadline.cancelled_caught:
            late = ScoringError(f"the group rewards took longer than {seconds:g} s (--timeout.scoring)")
            for trace in traces:
                trace.errors.append(ErrorRecord.of(late))
        return traces


class Episodes:
    """The groups that are under way. Tasks without group rewards have none, so nothing of them is held."""

    def __init__(self, plan: Plan, earlier: Earlier) -> None:
        self._plan = plan
        self._earlier = earlier
        self._episodes: dict[TaskIdentity, Episode] = {}

    @property
    def waiting(self) -> list[Trace]:
        """Rollouts that have ended in this launch or before and are not scored yet."""
        seen = [trace for episode in self._episodes.values() for trace in episode.traces]
        unseen = [traces for task, traces in self._earlier.pending.items() if task not in self._episodes]
        return seen + [trace for traces in unseen for trace in traces]

    def complete(self) -> Iterator[Episode]:
        """Those whose rollouts had all ended before this launch."""
        if not self._earlier.pending:
            return
        for task, occurrence in self._plan.tasks:
            identity = (task.key, occurrence)
            # Closing one takes it out of what is pending.
            if identity in self._earlier.pending and (episode := self._open(task, identity)).left == 0:
                yield episode

    def end(self, planned: PlannedRollout, trace: Trace) -> Episode | None:
        """Note that a rollout has ended; its episode, when it was the last one."""
        identity = planned.identity[:2]
        episode = self._episodes.get(identity) or self._open(planned.task, identity)
        episode.left -= 1
        if not trace.errors:
            episode.traces.append(trace)
        return episode if episode.left == 0 else None

    def close(self, episode: Episode) -> None:
        """Forget an episode whose records are written."""
        del self._episodes[episode.identity]
        self._earlier.finished.update(map(identity_of, self._earlier.pending.pop(episode.identity, ())))

    def _open(self, task: Task, identity: TaskIdentity) -> Episode:
        numbers = range(self._plan.num_rollouts)
        left = sum(not self._earlier.has_ended((*identity, number)) for number in numbers)
        episode = Episode(task, identity, left, list(self._earlier.pending.get(identity, ())))
        self._episodes[identity] = episode
        return episode
