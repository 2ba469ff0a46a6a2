"""The numbers of a run. Each has one function, here or in a module named here, which every command uses.

`estimates`: means, intervals, pass@k; `durations`: percentiles; `causes`: errors; `tokens`: what was read anew.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vfx.messages import Usage
from vfx.runner.causes import Causes
from vfx.runner.durations import Durations
from vfx.runner.estimates import Estimate, clustered_error, mean, pass_at_k, pass_counts
from vfx.runner.tokens import SideUsage, distinct_input_tokens, usage_record
from vfx.trace.record import Trace

__all__ = ["STAGES", "Estimate", "Tally", "clustered_error", "mean", "pass_at_k"]

STAGES = ("boot", "setup", "tools", "agent", "finalize", "scoring")
"""The stages of a rollout, in order."""

_Key = tuple[str, int]
_Clusters = dict[_Key, list[float]]


@dataclass(slots=True)
class Tally:
    """What has come of a run so far. Grows by numbers, not by traces."""

    planned: int = 0
    rollouts_per_task: int = 1
    """As planned; says up to which k there is a pass@k."""
    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    running: int = 0
    scored: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errored rollouts by the kind of their first error."""
    examples: dict[str, str] = field(default_factory=dict[str, str])
    """The first message of each kind."""
    causes: Causes = field(default_factory=Causes)
    """The same errors by cause."""
    interrupted: int = 0
    retried: int = 0
    stop_conditions: Counter[str] = field(default_factory=Counter[str])
    usage: Usage = field(default_factory=Usage)
    """Of calls that became turns."""
    failed_usage: Usage = field(default_factory=Usage)
    """Of calls that failed, as far as they were billed."""
    distinct_input_tokens: int | None = 0
    """Prompt tokens without those that an earlier turn had billed already; None when a turn can't tell."""
    calls: int = 0
    failed_calls: int = 0
    calls_without_usage: int = 0
    """Turns whose provider did not tell the tokens, so that `usage` is too low."""
    side_usage: SideUsage = field(default_factory=SideUsage)
    """Of judges and simulated users."""
    first_byte: Durations = field(default_factory=Durations)
    """From a turn's start to the first byte of its answer, waits included."""
    call: Durations = field(default_factory=Durations)
    """From a turn's start to the end of its answer, waits included."""
    rollout: Durations = field(default_factory=Durations)
    """Of rollouts that are done."""
    stages: dict[str, Durations] = field(default_factory=dict[str, Durations])
    """Of rollouts that are done, for each stage that they reached."""
    _rewards: _Clusters = field(default_factory=_Clusters)
    _named: dict[tuple[str, str], _Clusters] = field(default_factory=dict[tuple[str, str], _Clusters])

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
        self._add_times(trace)
        if trace.stop_condition is not None:
            self.stop_conditions[trace.stop_condition] += 1
        if trace.errors:
            first = trace.errors[0]
            self.errors[first.kind] += 1
            self.examples.setdefault(first.kind, first.message)
            self.causes.add(trace)
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
        """Count the calls of an attempt, whatever became of it."""
        for call in trace.calls:
            if call.error is not None:
                self.failed_calls += 1
                self.failed_usage += call.usage
                continue
            self.calls += 1
            self.usage += call.usage
            self.calls_without_usage += call.usage.output_tokens is None
            if call.span.end is not None:
                self.call.add(call.span.end - call.span.start)
            if call.first_byte is not None:
                self.first_byte.add(call.first_byte)
        self.side_usage.add(trace.side_calls)
        distinct = distinct_input_tokens(trace)
        known = self.distinct_input_tokens
        self.distinct_input_tokens = None if known is None or distinct is None else known + distinct

    def _add_times(self, trace: Trace) -> None:
        for name, span in trace.timing.items():
            if span.end is None:
                continue
            if name == "total":
                self.rollout.add(span.end - span.start)
            else:
                self.stages.setdefault(name, Durations()).add(span.end - span.start)

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
            "error_causes": [cause.to_record() for cause in self.causes],
            "interrupted": self.interrupted,
            "retried": self.retried,
            "reward": self._scores(self._rewards) | {"mean_errored_as_zero": self.mean_errored_as_zero},
            "rewards": {name: self._scores(values) for (of, name), values in self._named.items() if of == "reward"},
            "metrics": {
                name: Estimate.of(list(values.values())).to_record()
                for (of, name), values in self._named.items()
                if of == "metric"
            },
            "stop_conditions": dict(self.stop_conditions),
            "usage": usage_record(self.usage)
            | {
                "distinct_input_tokens": self.distinct_input_tokens if self.calls else None,
                "turns_without_usage": self.calls_without_usage,
            },
            "failed_usage": usage_record(self.failed_usage),
            "side_usage": self.side_usage.to_record(),
            "turns": self.calls,
            "failed_calls": self.failed_calls,
            "latency": {
                "first_byte": self.first_byte.to_record(),
                "call": self.call.to_record(),
                "rollout": self.rollout.to_record(),
            },
            "stages": {name: self.stages[name].to_record() for name in _in_order(self.stages)},
        }

    def _scores(self, clusters: _Clusters) -> dict[str, Any]:
        values = list(clusters.values())
        chances = {str(k): pass_at_k(values, k) for k in pass_counts(self.rollouts_per_task)}
        return Estimate.of(values).to_record() | {"pass_at_k": chances}


def _in_order(stages: Mapping[str, Durations]) -> Sequence[str]:
    others = sorted(stages.keys() - set(STAGES))
    return [name for name in (*STAGES, *others) if name in stages]
