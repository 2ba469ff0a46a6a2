"""Scores the finished rollouts of a run again, with the rewards of today and without a model.

Only rewards and metrics are computed: no program runs, and neither does `setup` or `finalize`. What asks for the
runtime, which is gone, stays as it was recorded. The old folder is only read.
"""

import copy
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
from vfx.runner.changes import Changes
from vfx.runner.config import EvalConfig
from vfx.runner.episode import Episode
from vfx.runner.evaluate import Outcome, judge
from vfx.runner.plan import Plan
from vfx.runner.recorded import Lookup, RecordedRun
from vfx.runner.scoring import has_group_rewards, score
from vfx.runner.state import restore_state
from vfx.runner.store import SUMMARY, RunStore
from vfx.runner.summary import Tally
from vfx.trace.record import ErrorRecord, Score, TaskRef, Trace

__all__ = ["Replay", "reference", "replay"]

Name = tuple[str, str]
"""`reward` or `metric`, and what it is called."""


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
    changes: Changes = field(default_factory=Changes)
    """What is compared, and what is left out."""
    after: Tally = field(default_factory=Tally)
    kept: Counter[Name] = field(default_factory=Counter[Name])
    """How often a number stayed as it was recorded, because it needs the runtime or a judge."""
    missing: Counter[Name] = field(default_factory=Counter[Name])
    """How often a number that needs the runtime or a judge had not been recorded, and is left out."""
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
        return f"{self.after.done}/{self.after.planned} rollouts scored again  {self.changes.changed} changed"

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
                **self.changes.to_record(self.after),
                "kept": {" ".join(name): count for name, count in self.kept.items()},
                "missing": {" ".join(name): count for name, count in self.missing.items()},
            },
            "exit_code": outcome.exit_code,
            "exit_reason": redact(outcome.reason),
        }


async def replay(run: Replay, shutdown: Shutdown) -> None:
    """Score every recorded rollout again; the summary is written whatever happens.

    Args:
        run: What to replay; holds the results.
        shutdown: What signals have done to it; decides the exit code after one.

    Raises:
        RunError: The results can't be written.
    """
    run.shutdown = shutdown
    for tally in (run.changes.before, run.after):
        tally.planned = sum(map(len, run.recorded.groups.values()))
        tally.rollouts_per_task = run.config.num_rollouts
    run.after.started = time.time()
    threads = HookThreads()
    lookup = Lookup(run.plan)
    waiting = iter(run.recorded.groups)
    try:
        async with threads.processes.serving(), anyio.create_task_group() as group:
            for number in range(min(run.config.workers, len(run.recorded.groups))):
                group.start_soon(_work, run, lookup, waiting, threads, name=f"worker {number}")
        for trace, is_retry in run.recorded.attempts():
            for tally in (run.changes.before, run.after):
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
        run.changes.leave_out(reason, traces)
        for tally in (run.changes.before, run.after):
            tally.planned -= len(traces)
        return
    # Scoring gives a trace new rewards, metrics and errors, so the copies keep those that were recorded.
    recorded = [copy.copy(trace) for trace in traces]
    for trace in traces:
        trace.task = reference(task, trace.task)
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
        run.after.add(new)
        run.changes.add(old, new)


def reference(task: Task, recorded: TaskRef) -> TaskRef:
    """The task as it is today: fields that were added since then are in its data."""
    return TaskRef(type(task).__name__, task.key, recorded.occurrence, task.data, task.id, task.name)


async def _score(run: Replay, task: Task, trace: Trace, threads: HookThreads) -> None:
    recorded = copy.copy(trace)
    trace.errors, trace.rewards, trace.metrics = [], {}, {}
    seconds = run.config.seconds_for("scoring", task)
    available: dict[str, Any] = {"trace": trace, "task": task}
    try:
        restore_state(task, trace)
        available["state"] = trace.state
    except ScoringError as error:
        if _asks_for_state(task):
            trace.errors.append(ErrorRecord.of(error))
    with anyio.move_on_after(seconds) as deadline:
        await score(task, trace, available, threads)
    if deadline.cancelled_caught:
        message = f"scoring took longer than {seconds:g} s (--timeout.scoring)"
        trace.errors.append(ErrorRecord.of(ScoringError(message)))
    if _restore(run, task, trace, recorded):
        trace.errors += [
            error for error in recorded.errors if error.message not in {new.message for new in trace.errors}
        ]


def _restore(run: Replay, task: Task, trace: Trace, recorded: Trace) -> bool:
    """Put back what can't be computed without the runtime or a judge.

    Returns:
        True when some of it failed at the time, so that the rollout stays errored.
    """
    has_failed = False
    for hook in _asking_hooks(task):
        kind = hook.kind
        then = cast("Mapping[str, Any]", recorded.rewards if kind == "reward" else recorded.metrics)
        now: dict[str, Any] = trace.rewards if kind == "reward" else trace.metrics
        now.pop(hook.name, None)
        # One that gave a mapping is recorded under the mapping's names: those that nothing else has given now.
        names = [hook.name] if hook.name in then else [name for name in then if name not in now]
        if not names:
            run.missing[kind, hook.name] += 1
        for name in names:
            # The weight is a number of today; only the score needed what is gone.
            value = Score(then[name].score, hook.weight) if kind == "reward" else then[name]
            now[name] = value
            run.kept[kind, name] += 1
            has_failed = has_failed or (value.score if isinstance(value, Score) else value) is None
        for name in hook.metrics:
            trace.metrics[name] = recorded.metrics.get(name)
    return has_failed


def _asking_hooks(task: Task) -> Sequence[Hook]:
    return [hook for hook in _scores(task) if not {"runtime", "judge"}.isdisjoint(hook.parameters)]


def _asks_for_state(task: Task) -> bool:
    return any("state" in hook.parameters and "runtime" not in hook.parameters for hook in _scores(task))


def _scores(task: Task) -> Sequence[Hook]:
    return (*task.hooks("metric"), *task.hooks("reward"))
