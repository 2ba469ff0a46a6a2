"""Runs the programs of a finished run again, on the answers that the run was given: no model is called.

A rollout that the record of its own answers can't carry any further has drifted: it is errored, and the others go on.
One that its provider had failed stays as it was recorded, since nobody can tell what would have been answered.
"""

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vfx._concurrency import Shutdown
from vfx.clients.recorded import RecordedClient
from vfx.clients.recording import Recording
from vfx.errors import DriftError, InterceptionError, ProviderError, TunnelError
from vfx.runner.changes import Changes, label
from vfx.runner.config import EvalConfig
from vfx.runner.environment import Environment
from vfx.runner.evaluate import Run, evaluate
from vfx.runner.plan import Identity, Plan
from vfx.runner.recorded import Lookup, RecordedRun
from vfx.runner.replay import reference
from vfx.runner.resume import Earlier
from vfx.runner.store import SUMMARY, RunStore
from vfx.trace.record import Trace

__all__ = ["Rerun", "Selection", "environment_of", "rerun", "select"]

MOST_TOLD = 10
"""How many of the rollouts that drifted are told of with their differences."""

# What stood between the program and its answers. What failed in the program's own world may go well today.
_WITHOUT_ANSWERS = frozenset({ProviderError.kind, InterceptionError.kind, TunnelError.kind})


@dataclass
class Selection:
    """Which rollouts of a recorded run are run again, and which are not."""

    recorded: RecordedRun
    plan: Plan
    """The tasks of today that rollouts of the record belong to."""
    offsets: dict[Identity, int] = field(default_factory=dict[Identity, int])
    """Where each rollout is recorded, by its identity today."""
    kept: set[Identity] = field(default_factory=set[Identity])
    """Those that stay as they were recorded."""
    changes: Changes = field(default_factory=Changes)

    def read(self, rollout: Identity) -> Trace | None:
        """The record of a rollout; None when there is none. May block."""
        offset = self.offsets.get(rollout)
        return None if offset is None else self.recorded.read_at(offset)

    def not_run(self) -> set[Identity]:
        """The rollouts of the plan that are not run."""
        planned = {rollout.identity for rollout in self.plan}
        return planned - (self.offsets.keys() - self.kept)


def select(recorded: RecordedRun, plan: Plan) -> Selection:
    """Choose what is run again. May block: it reads every record.

    Args:
        recorded: The run.
        plan: The tasks of today.
    """
    lookup, selection = Lookup(plan), Selection(recorded, plan)
    tasks: list[Any] = []
    highest = -1
    for places in recorded.groups.values():
        traces = [(recorded.read_at(offset), offset) for offset in places]
        task, reason = lookup.find(traces[0][0])
        if task is None:
            selection.changes.leave_out(reason, [trace for trace, _ in traces])
            continue
        tasks.append((task, traces[0][0].task.occurrence))
        for trace, offset in traces:
            identity = (task.key, trace.task.occurrence, trace.rollout)
            selection.offsets[identity] = offset
            highest = max(highest, trace.rollout)
            if trace.errors and trace.errors[0].kind in _WITHOUT_ANSWERS:
                selection.kept.add(identity)
    selection.plan = Plan(tasks, highest + 1)
    return selection


def environment_of(config: EvalConfig, selection: Selection) -> Environment:
    """The environment of `config`, with the record in the place of its model."""
    return Environment(config, client=RecordedClient(selection.read, config.model or ""))


@dataclass(kw_only=True)
class Rerun(Run):
    """A run on recorded answers, as whoever watches it sees it."""

    selection: Selection
    drifted: int = 0
    """Rollouts that asked what is on no record."""
    drifts: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """The first of them, with what differed."""
    unasked: Counter[str] = field(default_factory=Counter[str])
    """By task: rollouts that ended well without having asked for all of their answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tally.planned = self.selection.changes.before.planned = len(self.selection.offsets)
        for tally in (self.tally, self.selection.changes.before):
            tally.rollouts_per_task = self.config.num_rollouts
        self.num_earlier = 0

    @classmethod
    def of(
        cls,
        environment: Environment,
        selection: Selection,
        store: RunStore,
        shutdown: Shutdown,
        *,
        most_concurrent: int | None = None,
    ) -> "Rerun":
        """A run that has not begun, in an environment from `environment_of`; `most_concurrent` as for any run."""
        return cls(
            environment,
            selection.plan,
            store,
            Earlier(finished=selection.not_run()),
            shutdown,
            selection=selection,
            most_concurrent=most_concurrent,
        )

    def progress(self) -> str:
        """Where it stands, on one line."""
        changed = self.selection.changes.changed
        return f"{self.tally.done}/{self.tally.planned} rollouts run again  {changed} changed  {self.drifted} drifted"

    def note(self, trace: Trace) -> None:
        """Count a finished rollout, and compare it with its record."""
        super().note(trace)
        identity = (trace.task.key, trace.task.occurrence, trace.rollout)
        recording = self._release(identity)
        self.selection.changes.add(recording.trace, trace)
        error = trace.errors[0] if trace.errors else None
        if error is not None and error.kind == DriftError.kind:
            self.drifted += 1
            if len(self.drifts) < MOST_TOLD:
                told = {"task": label(trace.task), "rollout": trace.rollout, "message": error.message}
                self.drifts.append(told)
        elif error is None and recording.num_unasked:
            self.unasked[label(trace.task)] += 1

    def _release(self, identity: Identity) -> Recording:
        client = self.environment.client
        found = client.release(identity) if isinstance(client, RecordedClient) else None
        if found is None:
            return Recording(self.selection.recorded.read_at(self.selection.offsets[identity]))
        return found

    def to_record(self) -> dict[str, Any]:
        """The summary as plain data: that of an eval, and how it differs from the recorded run."""
        record = super().to_record()
        selection = self.selection
        ending = {name: record.pop(name) for name in ("exit_code", "exit_reason")}
        return {
            **record,
            "replay_of": str(selection.recorded.folder),
            "replay": {
                "rerun": True,
                **selection.changes.to_record(self.tally),
                "kept_errored": len(selection.kept),
                "drifted": self.drifted,
                "drifts": list(self.drifts),
                "unasked": self.unasked.total(),
                "unasked_tasks": list(self.unasked),
                "kept": {},
                "missing": {},
            },
            **ending,
        }


async def rerun(run: Rerun) -> None:
    """Run every program again; the summary is written whatever happens.

    Args:
        run: What to run; holds the results.

    Raises:
        RunError: The results can't be written.
    """
    # Who finds the folder before the end sees that it is no run to be gone on with.
    run.store.write_whole(SUMMARY, json.dumps(run.to_record(), indent=2).encode() + b"\n")
    for old, new in _kept(run.selection):
        await run.store.append(new)
        run.tally.add(new)
        run.selection.changes.add(old, new)
    await evaluate(run)


def _kept(selection: Selection) -> Iterator[tuple[Trace, Trace]]:
    """The rollouts that stay as they are, each as it was and with its task of today."""
    tasks = {(task.key, occurrence): task for task, occurrence in selection.plan.tasks}
    for identity in sorted(selection.kept, key=lambda identity: selection.offsets[identity]):
        trace = selection.recorded.read_at(selection.offsets[identity])
        old = copy.copy(trace)
        trace.task = reference(tasks[identity[:2]], trace.task)
        yield old, trace
