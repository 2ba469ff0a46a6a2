"""Means with their uncertainty, and pass@k: pure arithmetic on the rewards of a run, task by task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Estimate", "clustered_error", "mean", "pass_at_k", "pass_counts"]

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


def pass_at_k(clusters: Sequence[Sequence[float]], k: int) -> float | None:
    """Chance that at least one of `k` rollouts of a task succeeds, averaged over tasks.

    A reward of exactly 1 is a success and one of exactly 0 a failure. A task with fewer than `k` values says nothing
    about `k` and is left out.

    Returns:
        None when some value is neither 0 nor 1, or no task has `k` values.
    Source:
        The unbiased estimator 1 - C(n-c, k) / C(n, k); Chen et al. 2021, "Evaluating Large Language Models Trained on
        Code", section 2.1.
    """
    if any(value not in (0.0, 1.0) for cluster in clusters for value in cluster):
        return None
    chances: list[float] = []
    for cluster in clusters:
        if len(cluster) >= k:
            failures = len(cluster) - sum(map(int, cluster))
            chances.append(1.0 - math.comb(failures, k) / math.comb(len(cluster), k))
    return mean(chances)


def pass_counts(rollouts_per_task: int) -> list[int]:
    """The values of k that are told: the powers of two up to the rollouts of a task."""
    return [1 << power for power in range(rollouts_per_task.bit_length())]


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
