"""Scores the finished rollouts of a run again, with the rewards of today and without a model.

Only rewards and metrics are computed: no program runs, and neither does `setup` or `finalize`. What asks for the
runtime, which is gone, stays as it was recorded. The old folder is only read.
"""

import copy
import heapq
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.to_thread

from vfx import __version__
from vfx._concurrency import Shutdown, is_blocked_loop
from vfx.authoring.hooks import Hook
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import ScoringError
from vfx.redaction import redact
from vfx.runner.config import EvalConfig
from vfx.runner.episode import Episode
from vfx.runner.evaluate import Outcome, judge
from vfx.runner.plan import Plan
from vfx.runner.recorded import Lookup, RecordedRun
from vfx.runner.scoring import has_group_rewards, score
from vfx.runner.store import SUMMARY, RunStore
from vfx.runner.summary import Tally
from vfx.trace.record import ErrorRecord, Score, TaskRef, Trace

__all__ = ["Change", "Replay", "replay"]

MOST_CHANGED = 10
"""How many of the rollouts that changed most are kept to be shown."""

Name = tuple[str, str]
"""`reward` or `metric`, and what it is called."""


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
class Replay:
    """A replay under way, as whoever watches it sees it."""

    config: EvalConfig
    recorded: RecordedRun
    plan: Plan
    """The tasks of today."""
    store: RunStore
    """Where the new records go."""
    shutdown: Shutdown | None = None
    """What signals have done to it; None before it has begun."""
    before: Tally = field(default_factory=Tally)
    """The numbers of the rollouts that are replayed, as they were."""
    after: Tally = field(default_factory=Tally)
    left_out: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Rollouts that could not be replayed: by the reason, how many of which task."""
    kept: Counter[Name] = field(default_factory=Counter[Name])
    """How often a number stayed as it was recorded, because it needs the runtime."""
    missing: Counter[Name] = field(default_factory=Counter[Name])
    """How often a number that needs the runtime had not been recorded, and is left out."""
    changed: int = 0
    """Rollouts whose rewards, metrics or errors are other ones now."""
    changes: list[Change] = field(default_factory=list[Change])
    """Those whose reward changed most; a heap."""
    ended: float | None = None
    """Seconds since the epoch; None while it goes on."""

    def outcome(self) -> Outcome:
        """The exit code and its cause, as for an eval."""
        code = None if self.shutdown is None else self.shutdown.exit_code
        if code is not None:
            return Outcome(code, "interrupted" if code == 130 else "terminated")
        return judge(self.after, self.config)

    def progress(self) -> str:
        """Where it stands, on one line."""
        return f"{self.after.done}/{self.after.planned} rollouts scored again  {self.changed} changed"

    def most_changed(self) -> Sequence[Change]:
        """The rollouts that changed most, the greatest change first."""
        return sorted(self.changes, key=lambda change: (-change.size, change.task, change.rollout))

    def to_record(self) -> dict[str, Any]:
        """The summary as plain data: that of an eval, and what the replay has changed."""
        outcome, config = self.outcome(), self.config
        return {
            "schema_version": 1,
            "vfx_version": __version__,
            "environment": config.taskset.id,
            "model": config.model or "",
            "harness": config.harness.id,
            "run_dir": str(self.store.folder),
            "replay_of": str(self.recorded.folder),
            "started": self.after.started,
            "seconds": round((self.ended or time.time()) - self.after.started, 3),
            "tasks": len(self.recorded.groups),
            "rollouts_per_task": config.num_rollouts,
            **self.after.to_record(),
            "retries": 0,
            "peak_servers": 0,
            "servers_left": 0,
            "replay": {
                "changed": self.changed,
                "left_out": {reason: tasks.total() for reason, tasks in self.left_out.items()},
                "left_out_tasks": {reason: list(tasks) for reason, tasks in self.left_out.items()},
                "kept": {" ".join(name): count for name, count in self.kept.items()},
                "missing": {" ".join(name): count for name, count in self.missing.items()},
                "differences": list(self.differences()),
                "most_changed": [
                    {"task": c.task, "rollout": c.rollout, "old": c.old, "new": c.new} for c in self.most_changed()
                ],
            },
            "exit_code": outcome.exit_code,
            "exit_reason": redact(outcome.reason),
        }

    def differences(self) -> Iterator[dict[str, Any]]:
        """The old and the new mean of the reward, of each part of it, and of each metric."""
        old, new = self.before.to_record(), self.after.to_record()
        yield _difference("reward", "", old["reward"], new["reward"])
        for kind in ("reward", "metric"):
            then, now = old[f"{kind}s"], new[f"{kind}s"]
            for name in {**then, **now}:
                yield _difference(kind, name, then.get(name, {}), now.get(name, {}))


def _difference(kind: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    then, now = old.get("mean"), new.get("mean")
    difference = None if then is None or now is None else now - then
    return {"kind": kind, "name": name, "old": then, "new": now, "difference": difference}


async def replay(run: Replay, shutdown: Shutdown) -> None:
    """Score every recorded rollout again; the summary is written whatever happens.

    Args:
        run: What to replay; holds the results.
        shutdown: What signals have done to it; decides the exit code after one.

    Raises:
        RunError: The results can't be written.
    """
    run.shutdown = shutdown
    for tally in (run.before, run.after):
        tally.planned = sum(map(len, run.recorded.groups.values()))
        tally.rollouts_per_task = run.config.num_rollouts
    run.after.started = time.time()
    threads = HookThreads()
    lookup = Lookup(run.plan)
    waiting = iter(run.recorded.groups)
    try:
        async with threads.processes.serving(), anyio.create_task_group() as group:
            for number in range(min(run.config.max_concurrent, len(run.recorded.groups))):
                group.start_soon(_work, run, lookup, waiting, threads, name=f"worker {number}")
        for trace, is_retry in run.recorded.attempts():
            for tally in (run.before, run.after):
                tally.retried += is_retry
                tally.add_cost(trace)
    finally:
        run.ended = time.time()
        run.store.write_whole(SUMMARY, json.dumps(run.to_record(), indent=2).encode() + b"\n")


async def _work(run: Replay, lookup: Lookup, waiting: Iterator[tuple[str, int]], threads: HookThreads) -> None:
    for identity in waiting:
        traces = await anyio.to_thread.run_sync(run.recorded.read, identity)
        try:
            await _replay_task(run, lookup, traces, threads)
        except BaseException as error:
            if not is_blocked_loop(error):
                raise
            # A signal has come and this task's code kept it waiting; the cancellation follows at once.
            await anyio.sleep_forever()


async def _replay_task(run: Replay, lookup: Lookup, traces: Sequence[Trace], threads: HookThreads) -> None:
    """Score the rollouts of one task, and keep them together."""
    task, reason = lookup.find(traces[0])
    if task is None:
        run.left_out.setdefault(reason, Counter())[_label(traces[0].task)] += len(traces)
        for tally in (run.before, run.after):
            tally.planned -= len(traces)
        return
    # Scoring gives a trace new rewards, metrics and errors, so the copies keep those that were recorded.
    recorded = [copy.copy(trace) for trace in traces]
    for trace in traces:
        trace.task = _reference(task, trace.task)
    scored = [trace for trace in traces if all(error.kind == ScoringError.kind for error in trace.errors)]
    for trace in scored:
        await _score(run, task, trace, threads)
    if has_group_rewards(task):
        seconds = run.config.seconds_for("scoring", task)
        identity = (task.key, traces[0].task.occurrence)
        compared = [trace for trace in scored if not trace.errors]
        await Episode(task, identity, left=0, traces=compared).score(threads, seconds)
    await run.store.append(*traces)
    for old, new in zip(recorded, traces, strict=True):
        run.before.add(old)
        run.after.add(new)
        if _numbers(old) != _numbers(new):
            _note_change(run, old, new)


def _numbers(trace: Trace) -> tuple[object, ...]:
    scores = {name: reward.score for name, reward in trace.rewards.items()}
    return trace.reward, scores, trace.metrics, [error.message for error in trace.errors]


def _note_change(run: Replay, old: Trace, new: Trace) -> None:
    run.changed += 1
    then, now = old.reward, new.reward
    size = float(then is not now) if then is None or now is None else abs(now - then)
    if not size:
        return
    change = Change(size, _label(new.task), new.rollout, then, now)
    (heapq.heappush if len(run.changes) < MOST_CHANGED else heapq.heappushpop)(run.changes, change)


def _label(task: TaskRef) -> str:
    return task.id or task.name or task.key


def _reference(task: Task, recorded: TaskRef) -> TaskRef:
    """The task as it is today: fields that were added since then are in its data."""
    return TaskRef(type(task).__name__, task.key, recorded.occurrence, task.data, task.id, task.name)


async def _score(run: Replay, task: Task, trace: Trace, threads: HookThreads) -> None:
    recorded = copy.copy(trace)
    trace.errors, trace.rewards, trace.metrics = [], {}, {}
    seconds = run.config.seconds_for("scoring", task)
    with anyio.move_on_after(seconds) as deadline:
        await score(task, trace, {"trace": trace, "task": task}, threads)
    if deadline.cancelled_caught:
        message = f"scoring took longer than {seconds:g} s (--timeout.scoring)"
        trace.errors.append(ErrorRecord.of(ScoringError(message)))
    if _restore(run, task, trace, recorded):
        trace.errors += [
            error for error in recorded.errors if error.message not in {new.message for new in trace.errors}
        ]


def _restore(run: Replay, task: Task, trace: Trace, recorded: Trace) -> bool:
    """Put back what can't be computed without the runtime.

    Returns:
        True when some of it failed at the time, so that the rollout stays errored.
    """
    has_failed = False
    for hook in _runtime_hooks(task):
        kind = hook.kind
        then = cast("Mapping[str, Any]", recorded.rewards if kind == "reward" else recorded.metrics)
        now: dict[str, Any] = trace.rewards if kind == "reward" else trace.metrics
        now.pop(hook.name, None)
        # One that gave a mapping is recorded under the mapping's names: those that nothing else has given now.
        names = [hook.name] if hook.name in then else [name for name in then if name not in now]
        if not names:
            run.missing[kind, hook.name] += 1
        for name in names:
            # The weight is a number of today; only the score needed the runtime.
            value = Score(then[name].score, hook.weight) if kind == "reward" else then[name]
            now[name] = value
            run.kept[kind, name] += 1
            has_failed = has_failed or (value.score if isinstance(value, Score) else value) is None
    return has_failed


def _runtime_hooks(task: Task) -> Sequence[Hook]:
    hooks = (*task.hooks("metric"), *task.hooks("reward"))
    return [hook for hook in hooks if "runtime" in hook.parameters]
