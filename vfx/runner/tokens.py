"""Counts of tokens: which of a conversation's were new, and those of side models, by what they were asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vfx.messages import Usage
from vfx.trace.record import SideCall, Trace

__all__ = ["SideUsage", "distinct_input_tokens", "usage_record"]


@dataclass(slots=True)
class _Purpose:
    """The side calls of one purpose."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    calls_without_usage: int = 0
    failed_calls: int = 0
    failed_usage: Usage = field(default_factory=Usage)


class SideUsage:
    """What judges and simulated users have cost so far, by purpose; calls that came to nothing apart."""

    def __init__(self) -> None:
        self._purposes: dict[str, _Purpose] = {}

    def add(self, calls: Iterable[SideCall]) -> None:
        """Count the side calls of an attempt."""
        for call in calls:
            purpose = self._purposes.setdefault(call.purpose, _Purpose())
            if call.error is not None:
                purpose.failed_calls += 1
                purpose.failed_usage += call.usage
                continue
            purpose.calls += 1
            purpose.usage += call.usage
            purpose.calls_without_usage += call.usage.output_tokens is None

    @property
    def tokens(self) -> Mapping[str, int]:
        """All tokens that are known, by purpose."""
        sums = {name: purpose.usage + purpose.failed_usage for name, purpose in sorted(self._purposes.items())}
        return {name: (usage.input_tokens or 0) + (usage.output_tokens or 0) for name, usage in sums.items()}

    def to_record(self) -> dict[str, Any]:
        """As plain data, in the form that `summary.json` keeps."""
        return {
            name: usage_record(purpose.usage)
            | {
                "calls": purpose.calls,
                "calls_without_usage": purpose.calls_without_usage,
                "failed_calls": purpose.failed_calls,
                "failed_usage": usage_record(purpose.failed_usage),
            }
            for name, purpose in sorted(self._purposes.items())
        }


def usage_record(usage: Usage) -> dict[str, int | None]:
    """The counts as plain data; one that nobody told is None."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def distinct_input_tokens(trace: Trace) -> int | None:
    """Prompt tokens of all turns, less those that an earlier turn of the same branch had billed.

    A turn that continues an earlier one repeats its prompt and its answer, the reasoning left out; what its prompt
    holds beyond that is new. Where a repetition is billed with more tokens than before, the difference counts as new;
    a turn that leaves parts out counts 0, never less.

    Returns:
        None when a turn has no token counts, or continues one that gave several answers, whose counts come as one sum.
    """
    total = 0
    turns: dict[int, int] = {}
    for number, call in enumerate(trace.calls):
        if call.error is not None or not call.nodes:
            continue
        if call.usage.input_tokens is None:
            return None
        total += call.usage.input_tokens
        parents = trace.graph.ancestry(trace.nodes[call.nodes[0]].parent)
        earlier = next((turns[index] for index in parents if index in turns), None)
        if earlier is not None:
            before = trace.calls[earlier]
            if len(before.nodes) > 1 or before.usage.output_tokens is None:
                return None
            billed = before.usage.input_tokens or 0
            billed += before.usage.output_tokens - (before.usage.reasoning_tokens or 0)
            total -= min(billed, call.usage.input_tokens)
        turns.update(dict.fromkeys(call.nodes, number))
    return total
