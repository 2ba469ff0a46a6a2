from collections.abc import Sequence

from tests.support.traces import make_trace
from vfx.errors import ProviderError
from vfx.messages import Message, Usage
from vfx.runner.tokens import distinct_input_tokens
from vfx.trace.record import Call, ErrorRecord, Span, Trace


def add_turn(trace: Trace, prompt: Sequence[Message], *answers: str, usage: Usage) -> list[Message]:
    """Adds a turn; returns the conversation that it leads to."""
    messages = [Message("assistant", answer) for answer in answers]
    nodes = trace.graph.commit(prompt, messages)
    trace.calls.append(Call("m", {}, "here", Span(0.0, 1.0), nodes=nodes, usage=usage))
    return [*prompt, messages[0]]


def test_a_conversation_sent_again_is_not_counted_again() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", usage=Usage(10, 5))
    talk = add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage(18, 4))
    add_turn(trace, [*talk, Message("user", "e")], "f", usage=Usage(25, 1))
    assert distinct_input_tokens(trace) == 10 + 3 + 3


def test_branches_are_counted_apart() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", usage=Usage(10, 5))
    add_turn(trace, [Message("user", "other")], "x", usage=Usage(7, 1))
    add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage(18, 4))
    assert distinct_input_tokens(trace) == 10 + 7 + 3


def test_reasoning_is_not_sent_again() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", usage=Usage(10, 105, reasoning_tokens=100))
    add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage(18, 4))
    assert distinct_input_tokens(trace) == 13


def test_a_turn_never_counts_less_than_nothing() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", usage=Usage(10, 500))
    add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage(18, 4))
    assert distinct_input_tokens(trace) == 10


def test_a_turn_without_a_count_leaves_it_unknown() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", usage=Usage(10, 5))
    add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage())
    assert distinct_input_tokens(trace) is None


def test_several_answers_at_once_leave_their_continuation_unknown() -> None:
    trace = make_trace(reply=None)
    talk = add_turn(trace, [Message("user", "a")], "b", "B", usage=Usage(10, 10))
    assert distinct_input_tokens(trace) == 10
    add_turn(trace, [*talk, Message("user", "c")], "d", usage=Usage(18, 4))
    assert distinct_input_tokens(trace) is None


def test_failed_calls_are_no_turns() -> None:
    trace = make_trace(usage=Usage(10, 5))
    failed = Call("m", {}, "here", Span(0.0, 1.0), error=ErrorRecord.of(ProviderError("gone")))
    trace.calls.append(failed)
    assert distinct_input_tokens(trace) == 10
