"""The numbers of a run. Each has one function here, which every command uses."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vfx.messages import Usage
from vfx.trace.record import Trace

__all__ = ["Estimate", "Tally", "clustered_error", "mean"]

Z_95 = 1.959964


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def clustered_error(clusters: Sequence[Sequence[float]]) -> float | None:
    """Standard error of the mean over all values, when those of one cluster (the rollouts of a task) go together.

    Args:
        clusters: The values, cluster by cluster; empty clusters don't count.

    Returns:
        None with fewer than two clusters, from which no spread can be told.
    Source:
        Cluster-robust variance with the small-sample factor G/(G-1); Liang and Zeger 1986.
    """
    filled = [cluster for cluster in clusters if cluster]
    if len(filled) < 2:
        return None
    values = [value for cluster in filled for value in cluster]
    centre = math.fsum(values) / len(values)
    squares = math.fsum(math.fsum(value - centre for value in cluster) ** 2 for cluster in filled)
    return math.sqrt(squares * len(filled) / (len(filled) - 1)) / len(values)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its uncertainty; None where it can't be told."""

    mean: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    """95 % interval, normal approximation."""
    count: int

    @classmethod
    def of(cls, clusters: Sequence[Sequence[float]]) -> "Estimate":
        """The estimate from the values of each task."""
        values = [value for cluster in clusters for value in cluster]
        centre, error = mean(values), clustered_error(clusters)
        interval = None if centre is None or error is None else (centre - Z_95 * error, centre + Z_95 * error)
        return cls(centre, error, interval, len(values))

    def to_record(self) -> dict[str, Any]:
        """As plain data."""
        return {"mean": self.mean, "stderr": self.stderr, "interval_95": self.interval, "count": self.count}


_Key = tuple[str, int]


@dataclass(slots=True)
class Tally:
    """What has come of a run so far. Grows by numbers, not by traces."""

    planned: int = 0
    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    running: int = 0
    scored: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errored rollouts by the kind of their first error."""
    examples: dict[str, str] = field(default_factory=dict[str, str])
    """The first message of each kind."""
    interrupted: int = 0
    retried: int = 0
    stop_conditions: Counter[str] = field(default_factory=Counter[str])
    usage: Usage = field(default_factory=Usage)
    """Of calls that became turns."""
    failed_usage: Usage = field(default_factory=Usage)
    """Of calls that failed, as far as they were billed."""
    calls: int = 0
    failed_calls: int = 0
    calls_without_usage: int = 0
    """Turns whose provider did not tell the tokens, so that `usage` is too low."""
    _rewards: dict[_Key, list[float]] = field(default_factory=dict[_Key, list[float]])
    _named: dict[tuple[str, str], dict[_Key, list[float]]] = field(
        default_factory=dict[tuple[str, str], dict[_Key, list[float]]]
    )

    @property
    def errored(self) -> int:
        """Rollouts that count as errored."""
        return self.errors.total()

    @property
    def done(self) -> int:
        """Rollouts that are scored or errored."""
        return self.scored + self.errored

    def add(self, trace: Trace) -> None:
        """Count a finished rollout."""
        self.add_cost(trace)
        if trace.stop_condition is not None:
            self.stop_conditions[trace.stop_condition] += 1
        if trace.errors:
            first = trace.errors[0]
            self.errors[first.kind] += 1
            self.examples.setdefault(first.kind, first.message)
            return
        self.scored += 1
        key = (trace.task.key, trace.task.occurrence)
        if (reward := trace.reward) is not None:
            self._rewards.setdefault(key, []).append(reward)
        for name, score in trace.rewards.items():
            if score.score is not None:
                self._named.setdefault(("reward", name), {}).setdefault(key, []).append(score.score)
        for name, value in trace.metrics.items():
            if value is not None:
                self._named.setdefault(("metric", name), {}).setdefault(key, []).append(value)

    def add_cost(self, trace: Trace) -> None:
        """Count the tokens of an attempt, whatever became of it."""
        for call in trace.calls:
            if call.error is not None:
                self.failed_calls += 1
                self.failed_usage += call.usage
                continue
            self.calls += 1
            self.usage += call.usage
            self.calls_without_usage += call.usage.output_tokens is None

    @property
    def reward(self) -> Estimate:
        """Over scored rollouts."""
        return Estimate.of(list(self._rewards.values()))

    @property
    def mean_errored_as_zero(self) -> float | None:
        """Over scored and errored rollouts, an errored one counting 0; None when none has a reward."""
        values = [value for values in self._rewards.values() for value in values]
        return math.fsum(values) / (len(values) + self.errored) if values else None

    @property
    def error_share(self) -> float:
        """Errored rollouts among those that are done."""
        return self.errored / self.done if self.done else 0.0

    def to_record(self) -> dict[str, Any]:
        """The counts and means as plain data, in the form that `summary.json` keeps."""
        return {
            "planned": self.planned,
            "scored": self.scored,
            "errored": self.errored,
            "errors": dict(self.errors),
            "error_examples": dict(self.examples),
            "interrupted": self.interrupted,
            "retried": self.retried,
            "reward": self.reward.to_record() | {"mean_errored_as_zero": self.mean_errored_as_zero},
            "rewards": self._estimates("reward"),
            "metrics": self._estimates("metric"),
            "stop_conditions": dict(self.stop_conditions),
            "usage": _usage(self.usage) | {"turns_without_usage": self.calls_without_usage},
            "failed_usage": _usage(self.failed_usage),
            "turns": self.calls,
            "failed_calls": self.failed_calls,
        }

    def _estimates(self, kind: str) -> Mapping[str, Any]:
        return {
            name: Estimate.of(list(clusters.values())).to_record()
            for (of, name), clusters in self._named.items()
            if of == kind
        }


def _usage(usage: Usage) -> dict[str, int | None]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
