from collections.abc import Sequence

from tests.support.traces import make_trace
from vfx.errors import ProviderError
from vfx.messages import Message, Usage
from vfx.runner.tokens import SideUsage, distinct_input_tokens
from vfx.trace.record import Call, ErrorRecord, SideCall, Span, Trace


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


def side_call(purpose: str, usage: Usage, error: ErrorRecord | None = None) -> SideCall:
    return SideCall(purpose, "name", "m", "here", Span(0.0, 1.0), (), usage=usage, error=error)


def test_side_models_are_counted_by_purpose_and_failures_apart() -> None:
    usage = SideUsage()
    failed = ErrorRecord("scoring", "unreadable")
    usage.add([side_call("user", Usage(1, 2)), side_call("judge", Usage(10, 3)), side_call("judge", Usage(20, 4))])
    usage.add([side_call("judge", Usage(7, 1), failed), side_call("judge", Usage())])
    record = usage.to_record()
    assert list(record) == ["judge", "user"]
    judge = record["judge"]
    assert (judge["input_tokens"], judge["output_tokens"], judge["calls"]) == (30, 7, 3)
    assert (judge["failed_calls"], judge["failed_usage"]["output_tokens"], judge["calls_without_usage"]) == (1, 1, 1)
    assert usage.tokens == {"judge": 45, "user": 3}


def test_unknown_side_usage_is_not_zero() -> None:
    usage = SideUsage()
    usage.add([side_call("user", Usage())])
    assert usage.to_record()["user"]["output_tokens"] is None
