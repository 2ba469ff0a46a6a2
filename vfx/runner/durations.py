"""Percentiles of durations in bounded memory, however many there are."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RELATIVE_ERROR", "Durations"]

SHORTEST_S = 1e-4
"""All shorter ones share one bucket."""
LONGEST_S = 1e6
RATIO = 1.04
RELATIVE_ERROR = math.sqrt(RATIO) - 1
"""How far a percentile may be from the true one, as a share of it: 2 %."""
_LOG_RATIO = math.log(RATIO)
_MICRO = 1_000_000


@dataclass(slots=True)
class Durations:
    """A histogram with log-spaced buckets, at most 590 of them; count, sum and extremes are exact to a microsecond."""

    count: int = 0
    buckets: Counter[int] = field(default_factory=Counter[int])
    """How many there are in each bucket that has any; bucket n ends at 0.1 ms * 1.04^n."""
    _micros: int = 0
    _shortest: float = math.inf
    _longest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one; a clock that was set back may have made it negative, which counts as 0."""
        seconds = min(max(seconds, 0.0), LONGEST_S)
        self.count += 1
        # Whole microseconds, so that the sum is the same in any order.
        self._micros += round(seconds * _MICRO)
        self._shortest = min(self._shortest, seconds)
        self._longest = max(self._longest, seconds)
        self.buckets[0 if seconds <= SHORTEST_S else 1 + int(math.log(seconds / SHORTEST_S) / _LOG_RATIO)] += 1

    @property
    def total(self) -> float:
        """The sum, in seconds."""
        return self._micros / _MICRO

    def percentile(self, share: float) -> float | None:
        """The duration, in seconds, that `share` of all don't exceed (nearest rank, within 2 %); None of nothing.

        Args:
            share: Within (0, 1].
        """
        if not self.count:
            return None
        rank, seen = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                middle = SHORTEST_S * RATIO ** (bucket - 0.5)
                return min(max(middle, self._shortest), self._longest)
        return self._longest

    def to_record(self) -> dict[str, Any]:
        """As plain data, in seconds."""
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        return {
            "count": self.count,
            "total": self.total,
            "mean": self.total / self.count if self.count else None,
            **{name: self.percentile(share) for name, share in shares.items()},
            "max": self._longest if self.count else None,
        }
