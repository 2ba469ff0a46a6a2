"""How many of the prompt tokens that were billed were new, and not a conversation's beginning sent once more."""

from vfx.trace.record import Trace

__all__ = ["distinct_input_tokens"]


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
