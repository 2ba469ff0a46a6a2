"""A rollout's rewards and metrics, computed by its task's hooks."""

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio

from vfx.authoring.hooks import Hook, call_hook, hooks_of
from vfx.authoring.task import Task
from vfx.errors import RolloutError, ScoringError, attributed
from vfx.trace.record import ErrorRecord, Score, Trace

__all__ = ["mark_unscored", "score"]


async def score(task: Task, trace: Trace, available: Mapping[str, Any], limiter: anyio.CapacityLimiter) -> None:
    """Run the metrics, then the rewards. One that fails has no score and an error; the others stay."""

    def set_reward(hook: Hook, name: str, value: float) -> None:
        trace.rewards[name] = Score(value, hook.weight)

    def set_metric(_hook: Hook, name: str, value: float) -> None:
        trace.metrics[name] = value

    mark_unscored(task, trace)
    for hook in hooks_of(type(task), "metric"):
        await _run(hook, f"metric {hook.name!r}", set_metric, task, trace, available, limiter)
    for hook in hooks_of(type(task), "reward"):
        await _run(hook, f"reward {hook.name!r}", set_reward, task, trace, available, limiter)


def mark_unscored(task: Task, trace: Trace) -> None:
    """Note every reward and metric that should be computed as not computed yet."""
    for hook in hooks_of(type(task), "metric"):
        trace.metrics.setdefault(hook.name, None)
    for hook in hooks_of(type(task), "reward"):
        trace.rewards.setdefault(hook.name, Score(None, hook.weight))


async def _run(
    hook: Hook,
    what: str,
    record: Callable[[Hook, str, float], None],
    task: Task,
    trace: Trace,
    available: Mapping[str, Any],
    limiter: anyio.CapacityLimiter,
) -> None:
    try:
        with attributed(ScoringError, what):
            values = _named_numbers(what, hook.name, await call_hook(hook, task, available, limiter))
    except RolloutError as error:
        trace.errors.append(ErrorRecord.of(error))
        return
    if hook.name not in values:
        # It gave a mapping: its names take the place of the hook's own.
        trace.rewards.pop(hook.name, None)
        trace.metrics.pop(hook.name, None)
    for name, value in values.items():
        record(hook, name, value)


def _named_numbers(what: str, name: str, value: object) -> dict[str, float]:
    given = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else {name: value}
    return {str(key): _finite(what, item) for key, item in given.items()}


def _finite(what: str, value: object) -> float:
    if not isinstance(value, numbers.Real):
        raise ScoringError(f"{what} must give a number, or a mapping of names to numbers, got {value!r:.200}")
    number = float(value)
    if not math.isfinite(number):
        raise ScoringError(f"{what} must give a finite number, got {number}")
    return number
