"""Looking up what one rollout was answered: by its conversation, whatever differs from run to run."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from vfx.clients.recording import Recording
from vfx.errors import DriftError, ProviderError
from vfx.messages import Completion, Message, ToolCall, Usage
from vfx.trace.record import Agent, Call, ErrorRecord, SideCall, Span, TaskRef, Trace

AT = 1_700_000_000.0
MONTH_LATER = AT + 30 * 86_400

USER = Message("user", "hello")


def trace() -> Trace:
    return Trace(id="t", task=TaskRef("T", "k", 0, {}), rollout=0, agent=Agent("m", {}, {}))


def turn(on: Trace, prompt: Sequence[Message], *answers: Message, tools: object = None) -> None:
    nodes = on.graph.commit(prompt, answers, tools=tools)
    call = Call("m", {}, "e", Span(AT, AT + 1), nodes, ["stop"] * len(nodes), Usage(1, 2))
    on.calls.append(call)


def failure(on: Trace, kind: str = "provider", status: int | None = 503) -> None:
    on.calls.append(Call("m", {}, "e", Span(AT, AT + 1), error=ErrorRecord(kind, "no room", status)))


def say(text: str) -> Message:
    return Message("assistant", text)


def texts(found: Completion | ProviderError) -> list[str]:
    assert isinstance(found, Completion)
    return [message.text for message in found.messages]


def test_each_turn_has_its_answer() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    turn(on, [USER, say("one"), USER], say("two"))
    recording = Recording(on)
    # In any order: what asks at the same time may come as it likes.
    found = recording.find([USER, say("one"), USER], AT)
    assert texts(found) == ["two"]
    assert isinstance(found, Completion)
    assert (found.usage, found.finish_reasons, found.model) == (Usage(1, 2), ("stop",), "m")
    assert texts(recording.find([USER], AT)) == ["one"]
    assert recording.num_unasked == 0


def test_equal_prompts_are_answered_in_recorded_order_and_no_oftener() -> None:
    on = trace()
    for text in ("one", "two"):
        turn(on, [USER], say(text))
    recording = Recording(on)
    assert [texts(recording.find([USER], AT)) for _ in range(2)] == [["one"], ["two"]]
    with pytest.raises(DriftError, match="once more than the 2 times on record"):
        recording.find([USER], AT)


def test_the_choices_of_one_call_come_together() -> None:
    on = trace()
    turn(on, [USER], say("a"), say("b"))
    assert texts(Recording(on).find([USER], AT)) == ["a", "b"]


def test_other_tools_are_no_other_conversation() -> None:
    on = trace()
    turn(on, [USER], say("plain"))
    turn(on, [USER], say("with tools"), tools=[{"name": "f"}])
    recording = Recording(on)
    assert [texts(recording.find([USER], AT)) for _ in range(2)] == [["plain"], ["with tools"]]


def test_thoughts_may_be_left_out_or_sent_back() -> None:
    on = trace()
    thinking = replace(say("one"), reasoning="hm", opaque=({"type": "thinking", "signature": "s"},))
    for _ in range(2):
        turn(on, [USER], thinking)
    turn(on, [USER, thinking, USER], say("two"))
    turn(on, [USER, say("one"), USER], say("three"))
    recording = Recording(on)
    assert texts(recording.find([USER, say("one"), USER], AT)) == ["two"]
    assert texts(recording.find([USER, thinking, USER], AT)) == ["three"]


OLD, NEW = (f"/scratch/vfx-{run * 16}/{run * 16}" for run in "ab")


def test_an_answer_is_about_the_folder_of_today() -> None:
    on = trace()
    call = ToolCall("call_old", "read", f'{{"path": "{OLD}/a.txt"}}')
    turn(on, [Message("user", f"in {OLD}")], replace(say(f"reading {OLD}"), tool_calls=(call,), reasoning=f"{OLD}?"))
    found = Recording(on).find([Message("user", f"in {NEW}")], MONTH_LATER)
    assert isinstance(found, Completion)
    [message] = found.messages
    assert (message.text, message.reasoning) == (f"reading {NEW}", f"{NEW}?")
    assert message.tool_calls[0].arguments == f'{{"path": "{NEW}/a.txt"}}'


def test_the_time_of_asking_does_not_matter() -> None:
    on = trace()
    turn(on, [Message("user", "it is 2023-11-14")], say("one"))
    assert texts(Recording(on).find([Message("user", "it is 2023-12-14")], MONTH_LATER)) == ["one"]
    with pytest.raises(DriftError):
        Recording(on).find([Message("user", "it is 2020-01-01")], MONTH_LATER)


def test_ids_of_tool_calls_that_a_program_makes_do_not_matter() -> None:
    def conversation(id: str) -> list[Message]:
        asked = replace(say(""), tool_calls=(ToolCall(id, "f", "{}"),))
        return [USER, asked, Message("tool", "done", tool_call_id=id)]

    on = trace()
    turn(on, conversation("x1"), say("one"))
    assert texts(Recording(on).find(conversation("y2"), AT)) == ["one"]


def test_what_is_on_no_record_is_told_with_the_nearest() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    turn(on, [USER, say("one"), Message("user", "go on")], say("two"))
    recording = Recording(on)
    with pytest.raises(DriftError) as drift:
        recording.find([USER, say("one"), Message("user", "go back")], AT)
    assert "differs at message 3 (user)" in str(drift.value)
    assert "recorded: go on" in str(drift.value)
    assert "asked:    go back" in str(drift.value)
    assert drift.value.is_final
    # From then on nothing is answered, whatever is asked.
    with pytest.raises(DriftError, match="go back"):
        recording.find([USER], AT)


def test_a_rollout_without_answers_has_none_to_give() -> None:
    with pytest.raises(DriftError, match="was given no answer in the recorded rollout"):
        Recording(trace()).find([USER], AT)


def test_a_failed_call_fails_where_it_failed() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    failure(on, "interception", None)
    failure(on)
    turn(on, [Message("user", "shorter")], say("two"))
    recording = Recording(on)
    assert texts(recording.find([USER], AT)) == ["one"]
    failed = recording.find([Message("user", "much longer")], AT)
    assert isinstance(failed, ProviderError)
    assert (str(failed), failed.status, failed.truncated) == ("no room", 503, False)
    assert texts(recording.find([Message("user", "shorter")], AT)) == ["two"]
    assert recording.num_unasked == 0


def test_a_failed_call_is_no_excuse_for_what_came_after_it() -> None:
    on = trace()
    failure(on)
    turn(on, [USER], say("one"))
    recording = Recording(on)
    assert texts(recording.find([USER], AT)) == ["one"]
    with pytest.raises(DriftError):
        recording.find([Message("user", "other")], AT)


def test_the_last_call_of_a_conversation_that_outgrew_the_context_is_refused_as_such() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    failure(on, status=400)
    on.stop_condition = "context_length"
    recording = Recording(on)
    recording.find([USER], AT)
    failed = recording.find([USER, say("one"), USER], AT)
    assert isinstance(failed, ProviderError)
    assert failed.truncated


def test_judges_are_answered_from_what_they_were_answered() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    for name, reply in (("strict", say("no")), ("mild", say("yes")), ("mild", None)):
        error = ErrorRecord("provider", "down", 500) if reply is None else None
        on.side_calls.append(SideCall("judge", name, "j", "e", Span(AT, AT), [USER], reply, error=error))
    recording = Recording(on)
    assert texts(recording.find([USER], AT, "judge mild")) == ["yes"]
    assert texts(recording.find([USER], AT, "judge strict")) == ["no"]
    assert isinstance(recording.find([USER], AT, "judge mild"), ProviderError)
    assert texts(recording.find([USER], AT)) == ["one"]
    with pytest.raises(DriftError, match="judge new was given no answer"):
        recording.find([USER], AT, "judge new")
