"""A rollout's rewards and metrics, and those that compare a task's rollouts, computed by the task's hooks."""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import anyio

from vfx.authoring.hooks import Hook, call_hook
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import RolloutError, ScoringError, attributed
from vfx.trace.record import ErrorRecord, Score, Trace

__all__ = ["has_group_rewards", "mark_unscored", "score", "score_group"]


async def score(task: Task, trace: Trace, available: Mapping[str, Any], threads: HookThreads) -> None:
    """Run the metrics, then the rewards. One that fails has no score and an error; the others stay.

    One that asks for what is not `available`, as the runtime of a rollout that ended long ago, is marked and not run.
    """
    mark_unscored(task, trace)
    for kind in ("metric", "reward"):
        given: set[str] = set()
        hooks = task.hooks(kind)
        asking = [hook for hook in hooks if "judge" in hook.parameters]
        for hook in hooks:
            if hook not in asking:
                await _record(hook, given, task, trace, available, threads)
        if judge := available.get("judge"):
            # Models take their time, which these spend together.
            async with anyio.create_task_group() as group:
                for hook in asking:
                    named = {**available, "judge": judge.named(hook.name)}
                    group.start_soon(_record, hook, given, task, trace, named, threads, name=hook.label)


def mark_unscored(task: Task, trace: Trace) -> None:
    """Note every reward and metric that should be computed as not computed yet."""
    for hook in task.hooks("metric"):
        trace.metrics.setdefault(hook.name, None)
    for hook in task.hooks("reward"):
        for name in hook.metrics:
            trace.metrics.setdefault(name, None)
    for kind in ("reward", "group_reward"):
        for hook in task.hooks(kind):
            trace.rewards.setdefault(hook.name, Score(None, hook.weight))


def has_group_rewards(task: Task) -> bool:
    """True when the rollouts of `task` have to be compared before they have a reward."""
    return bool(task.hooks("group_reward"))


async def score_group(task: Task, traces: Sequence[Trace], threads: HookThreads) -> None:
    """Run the rewards that compare the rollouts of `task`. One that fails is an error on each of their traces."""
    for hook in task.hooks("group_reward"):
        scores: Sequence[float | None] = [None] * len(traces)
        try:
            with attributed(ScoringError, hook.label):
                given = await call_hook(hook, task, {"traces": traces, "task": task}, threads)
                scores = _one_for_each(hook.label, given, len(traces))
        except RolloutError as error:
            for trace in traces:
                trace.errors.append(ErrorRecord.of(error))
        for trace, value in zip(traces, scores, strict=True):
            trace.rewards[hook.name] = Score(value, hook.weight)


def _one_for_each(what: str, given: object, count: int) -> list[float]:
    expected = f"{what} must give a list of {count} numbers, one for each trace in order"
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ScoringError(f"{expected}, got {given!r:.200}")
    values = [_finite(what, value) for value in cast("Iterable[object]", given)]
    if len(values) != count:
        raise ScoringError(f"{expected}, got {len(values)}")
    return values


async def _record(
    hook: Hook, given: set[str], task: Task, trace: Trace, available: Mapping[str, Any], threads: HookThreads
) -> None:
    """Run a metric or reward, and put what it gives on the trace as soon as it is there."""
    values = await _values(hook, given, task, trace, available, threads)
    if values is None:
        return
    scores: dict[str, Any] = trace.metrics if hook.kind == "metric" else trace.rewards
    if hook.name not in values:
        # It gave a mapping: its names take the place of the hook's own.
        scores.pop(hook.name, None)
    for name, value in values.items():
        scores[name] = value if hook.kind == "metric" else Score(value, hook.weight)
    given.update(values)


async def _values(
    hook: Hook,
    given: AbstractSet[str],
    task: Task,
    trace: Trace,
    available: Mapping[str, Any],
    threads: HookThreads,
) -> Mapping[str, float] | None:
    """What a hook gives, by name; None when it was not run or has failed, which is then on record."""
    if not available.keys() >= set(hook.parameters):
        return None
    what = hook.label
    try:
        with attributed(ScoringError, what):
            values = _named_numbers(what, hook.name, await call_hook(hook, task, available, threads))
        if twice := sorted(given & values.keys()):
            raise ScoringError(f"{what} gives {', '.join(twice)}, as another {hook.kind} has before it")
    except RolloutError as error:
        trace.errors.append(ErrorRecord.of(error))
        return None
    return values


def _named_numbers(what: str, name: str, value: object) -> dict[str, float]:
    given = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else {name: value}
    return {str(key): _finite(what, item) for key, item in given.items()}


def _finite(what: str, value: object) -> float:
    if getattr(value, "shape", None) == ():
        # A scalar of numpy or torch, of which not each kind is a number to Python.
        value = cast("Any", value).item()
    if not isinstance(value, numbers.Real):
        raise ScoringError(f"{what} must give a number, or a mapping of names to numbers, got {value!r:.200}")
    number = float(value)
    if not math.isfinite(number):
        raise ScoringError(f"{what} must give a finite number, got {number}")
    return number
