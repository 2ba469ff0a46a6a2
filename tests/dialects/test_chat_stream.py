import json
from typing import Any

import pytest

from vfx.dialects.chat_stream import ChatAssembler
from vfx.messages import Completion, Message, ToolCall, Usage


def event(choices: list[dict[str, Any]] | None = None, **fields: Any) -> bytes:
    chunk = {"id": "c1", "model": "m1", "choices": choices or [], **fields}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n\n"


def delta(index: int = 0, finish_reason: str | None = None, **fields: Any) -> bytes:
    return event([{"index": index, "delta": fields, "finish_reason": finish_reason}])


def call_part(index: int | None, *, id: str | None = None, type: str | None = None, **function: Any) -> dict[str, Any]:
    part = {"index": index, "id": id, "type": type, "function": function}
    return {name: value for name, value in part.items() if value is not None}


DONE = b"data: [DONE]\n\n"
END = delta(finish_reason="stop")


def assemble(*pieces: bytes, choices: int = 1) -> ChatAssembler:
    stream = ChatAssembler(choices)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return stream


def message_of(*pieces: bytes) -> Message:
    (message,) = assemble(*pieces, END, DONE).completion().messages
    return message


WHOLE = b"".join(
    [
        b"\xef\xbb\xbf: welcome\r\n\r\n",
        delta(role="assistant", content=""),
        delta(reasoning_content="denk "),
        delta(reasoning_content="你"),
        delta(content="héllo ").replace(b"\n\n", b"\r\n\r\n"),
        delta(content="🎉"),
        delta(tool_calls=[call_part(0, id="a", type="function", name="f", arguments="")]),
        b": keep-alive\n\n",
        delta(tool_calls=[call_part(0, arguments='{"x":')]),
        delta(tool_calls=[call_part(1, id="b", type="function", name="g", arguments="{}")]),
        delta(tool_calls=[call_part(0, arguments='"é"}')]),
        delta(index=1, role="assistant", content="other"),
        delta(index=1, finish_reason="length"),
        delta(finish_reason="tool_calls"),
        event(usage={"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 2}}),
        DONE,
    ]
)
EXPECTED = Completion(
    messages=(
        Message(
            "assistant",
            "héllo 🎉",
            (ToolCall("a", "f", '{"x":"é"}'), ToolCall("b", "g", "{}")),
            reasoning="denk 你",
        ),
        Message("assistant", "other"),
    ),
    finish_reasons=("tool_calls", "length"),
    usage=Usage(7, 9, reasoning_tokens=2),
    model="m1",
    id="c1",
)


def test_answer_does_not_depend_on_where_the_bytes_are_cut() -> None:
    for cut in range(len(WHOLE) + 1):
        stream = assemble(WHOLE[:cut], WHOLE[cut:], choices=2)
        assert (stream.completion(), stream.is_done, stream.is_complete) == (EXPECTED, True, True), cut


def test_bytes_may_come_one_by_one() -> None:
    stream = assemble(*(bytes([byte]) for byte in WHOLE), choices=2)
    assert stream.completion() == EXPECTED


def test_text_is_there_as_far_as_it_has_come() -> None:
    stream = ChatAssembler()
    assert stream.text == ""
    stream.feed(delta(content="ab") + delta(content="cd")[:-9])
    assert stream.text == "ab"
    assert not stream.is_complete


# When it is complete


@pytest.mark.parametrize(
    ("pieces", "choices", "is_complete"),
    [
        ([], 1, False),
        ([DONE], 1, False),
        ([event(usage={"prompt_tokens": 1}), DONE], 1, False),
        ([delta(content="a")], 1, False),
        ([delta(content="a"), END], 1, True),
        ([delta(content="a"), END, DONE], 1, True),
        ([delta(content="a"), DONE], 1, True),
        ([delta(content="a"), END], 2, False),
        ([delta(content="a"), END, DONE], 2, True),
        ([delta(content="a"), delta(index=1, content="b"), END], 2, False),
        ([delta(content="a"), END[:-1]], 1, True),
        ([delta(content="a"), END[:-3]], 1, False),
        ([delta(content="a"), END, event(error={"message": "x"})], 1, False),
        ([delta(content="a"), END, DONE, b"data: junk\n\n"], 1, True),
    ],
)
def test_completeness(pieces: list[bytes], choices: int, is_complete: bool) -> None:
    assert assemble(*pieces, choices=choices).is_complete is is_complete


def test_unknown_finish_reason_is_kept_and_none_invented() -> None:
    assert assemble(delta(finish_reason="eos_token")).completion().finish_reasons == ("eos_token",)
    assert assemble(delta(content="a"), DONE).completion().finish_reasons == (None,)


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (event(error={"message": "overloaded", "code": 529}), "the provider sent an error: overloaded"),
        (b'data: {"error":"overloaded"}\n\n', "the provider sent an error: overloaded"),
        (b'event: error\ndata: {"message":"overloaded"}\n\n', "the provider sent an error: overloaded"),
        (b"data: {\n\n", "an event is malformed: Expecting property name"),
        (b"data: [1]\n\n", "an event is malformed: event: expected an object, got list"),
        (b'data: {"choices":{}}\n\n', "an event is malformed: choices: expected a list, got dict"),
        (b'data: {"choices":[1]}\n\n', "an event is malformed: choices: expected an object, got int"),
        (delta(content=5), "an event is malformed: content: expected a list, got int"),
        (delta(role=5), "an event is malformed: role: expected text, got int"),
        (delta(tool_calls=["x"]), "an event is malformed: tool_calls: expected an object, got str"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "an event is malformed: "),
    ],
)
def test_error_is_kept_with_what_came_before(piece: bytes, error: str) -> None:
    stream = assemble(delta(content="abc"), piece, END, DONE)
    assert (stream.error or "").startswith(error)
    assert not stream.is_complete
    assert stream.text == "abc"
    assert stream.completion().messages[0].text == "abc"


# What providers send


def test_missing_usage_stays_unknown_and_the_last_one_counts() -> None:
    assert assemble(END).completion().usage == Usage()
    usages = [event(usage={"prompt_tokens": 3, "completion_tokens": n}) for n in range(3)]
    assert assemble(*usages, event(usage=None), END).completion().usage == Usage(3, 2)


def test_refusal_and_unknown_fields_are_kept() -> None:
    message = message_of(delta(refusal="I ca"), delta(refusal="n't", vendor={"a": 1}, citations=["u"]), delta(x=None))
    assert (message.content, message.refusal) == (None, "I can't")
    assert message.extra == {"vendor": {"a": 1}, "citations": ["u"]}


def test_either_name_of_reasoning_is_read() -> None:
    assert message_of(delta(reasoning="a"), delta(reasoning="b")).reasoning == "ab"
    assert message_of(delta(reasoning="a", reasoning_content="b")).reasoning == "b"


def test_name_id_and_type_that_are_repeated_count_once() -> None:
    part = call_part(0, id="a", type="function", name="f", arguments="1")
    empty = call_part(0, id="", type="", name="", arguments="2")
    message = message_of(delta(role="assistant", tool_calls=[part]), delta(role="assistant", tool_calls=[part, empty]))
    assert message.tool_calls == (ToolCall("a", "f", "112"),)
    assert message.role == "assistant"


def test_calls_without_index_are_calls_of_their_own() -> None:
    parts = [call_part(None, id=name, name=name, arguments="{}") for name in "ab"]
    assert [call.id for call in message_of(delta(tool_calls=parts)).tool_calls] == ["a", "b"]


def test_calls_that_share_an_index_are_told_apart_by_their_id() -> None:
    parts = [call_part(0, id=name, name=name, arguments="{}") for name in "ab"]
    parts.append(call_part(0, arguments="!"))
    calls = message_of(*(delta(tool_calls=[part]) for part in parts)).tool_calls
    assert calls == (ToolCall("a", "a", "{}"), ToolCall("b", "b", "{}!"))


def test_arguments_that_are_an_object_are_kept_as_json() -> None:
    parts = [call_part(0, id="a", name="f", arguments={"x": 1})]
    assert message_of(delta(tool_calls=parts)).tool_calls == (ToolCall("a", "f", '{"x": 1}'),)


def test_custom_tool_call_is_read() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    message = message_of(delta(tool_calls=[first]), delta(tool_calls=[{"index": 0, "custom": {"input": " -l"}}]))
    assert message.tool_calls == (ToolCall("a", "sh", "ls -l", "custom"),)


def test_function_call_of_the_old_kind_is_kept() -> None:
    message = message_of(delta(function_call={"name": "f", "arguments": "{"}), delta(function_call={"arguments": "}"}))
    assert message.extra == {"function_call": {"name": "f", "arguments": "{}"}}


def test_content_may_begin_with_parts_and_go_on_as_text() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    message = message_of(delta(content=[thought]), delta(content="four"))
    assert message.content == [thought, {"type": "text", "text": "four"}]
    assert message.text == "four"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_halves_of_a_character_are_joined(field: str) -> None:
    halves = [
        b'data: {"choices":[{"delta":{"%s":"a\\ud835"}}]}\n\n',
        b'data: {"choices":[{"delta":{"%s":"\\udd04b"}}]}\n\n',
    ]
    message = message_of(*(half % field.encode() for half in halves))
    assert (message.text or message.reasoning) == "a\U0001d504b"


def test_half_without_its_partner_stays() -> None:
    assert (
        message_of(b'data: {"choices":[{"delta":{"content":"a\\ud835"}}]}\n\n', delta(content="b")).text == "a\ud835b"
    )


def test_halves_in_tool_call_arguments_are_joined() -> None:
    parts = [
        '{"index":0,"id":"a","function":{"name":"f","arguments":"\\ud835"}}',
        '{"index":0,"function":{"arguments":"\\udd04"}}',
    ]
    pieces = [f'data: {{"choices":[{{"delta":{{"tool_calls":[{part}]}}}}]}}\n\n'.encode() for part in parts]
    assert message_of(*pieces).tool_calls[0].arguments == "\U0001d504"
