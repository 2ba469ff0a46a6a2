import json
from typing import Any

import pytest

from tests.support.native_replies import response_events, sse
from vfx.dialects.responses_stream import ResponsesAssembler
from vfx.messages import ToolCall, Usage

Object = dict[str, Any]

BEGUN: Object = {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress"}}
FUNCTION: Object = {"id": "fc", "type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}


def assemble(*events: Object) -> ResponsesAssembler:
    stream = ResponsesAssembler()
    stream.feed(b"".join(sse(events)))
    stream.finish()
    return stream


def completed(**fields: Any) -> Object:
    return {"type": "response.completed", "response": {"id": "r", "status": "completed", **fields}}


def delta(kind: str, text: str, index: int = 0, **fields: Any) -> Object:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **fields}


def test_without_an_output_at_the_end_the_items_are_the_answer() -> None:
    events = [event for event in response_events("ab", FUNCTION) if event["type"] != "response.completed"]
    stream = assemble(*events, completed(output=[], usage={"input_tokens": 2}))
    (message,) = stream.completion().messages
    assert (stream.is_complete, message.text, message.tool_calls) == (True, "ab", (ToolCall("c", "f", '{"a": 1}'),))
    assert (stream.completion().usage, stream.completion().finish_reasons) == (Usage(2), ("completed",))


def test_without_items_the_pieces_are_the_answer() -> None:
    kinds = ("response.output_item.done", "response.completed", "response.function_call_arguments.done")
    events = [event for event in response_events("ab", FUNCTION) if event["type"] not in kinds]
    (message,) = assemble(*events, completed()).completion().messages
    assert (message.text, message.tool_calls) == ("ab", (ToolCall("c", "f", '{"a": 1}'),))


def test_pieces_of_every_kind_are_put_together() -> None:
    stream = assemble(
        BEGUN,
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}},
        delta("reasoning_summary_text", "a", summary_index=0),
        delta("reasoning_summary_text", "b", summary_index=1),
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "reasoning"}},
        delta("reasoning_text", "raw", 1, content_index=0),
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "message", "content": []}},
        delta("output_text", "x", 2, content_index=0),
        delta("refusal", "no", 2, content_index=1),
        {"type": "response.odd.delta", "output_index": 2, "delta": "?"},
        {"type": "odd"},
        {"type": "response.output_item.added", "output_index": 3, "item": {"type": "custom_tool_call", "call_id": "c"}},
        delta("custom_tool_call_input", "f", 3),
        delta("custom_tool_call_input", "r", 3),
        completed(),
    )
    (message,) = stream.completion().messages
    assert (message.reasoning, message.text, message.refusal) == ("a\n\nb\n\nraw", "x", "no")
    assert message.tool_calls == (ToolCall("c", "", "fr", "custom"),)


def test_the_answer_as_far_as_it_has_come_has_no_finish_reason() -> None:
    stream = assemble(BEGUN, delta("output_text", "a\ud83c", item_id="i"), delta("output_text", "\udf0d", item_id="i"))
    assert (stream.text, stream.is_done, stream.is_complete) == ("a\U0001f30d", False, False)
    completion = stream.completion()
    assert (completion.id, completion.model, completion.finish_reasons) == ("r", "m", (None,))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"type": "error", "code": "x", "message": "oops"}, "the provider sent an error: oops (x)"),
        ({"type": "error", "error": {"message": "oops"}}, "the provider sent an error: oops"),
        ({"error": "oops", "type": ""}, "the provider sent an error: oops"),
        ({"type": "response.failed", "response": {"error": None}}, "the provider sent an error: it does not say why"),
        (completed() | {"response": 5}, "an event is malformed: response: expected an object, got int"),
        (completed() | {"response": None}, "an event is malformed: response: the terminal event has none"),
        (completed(output=[5]), "an event is malformed: output[0]: expected an object, got int"),
        (completed(output=5), "an event is malformed: response.output: expected a list, got int"),
        ({"type": "response.output_item.done", "item": {"content": 5}}, "an event is malformed: output[0].content"),
        (delta("output_text", "x") | {"delta": 5}, "an event is malformed: output_text: expected text, got int"),
    ],
)
def test_what_is_no_answer_is_told_and_what_came_stays(event: Object, words: str) -> None:
    stream = assemble(BEGUN, delta("output_text", "ab"), event, completed(output=[FUNCTION]))
    assert stream.error is not None
    assert stream.error.startswith(words)
    assert (stream.is_complete, stream.text) == (False, "ab")


def test_what_follows_the_end_does_not_count() -> None:
    stream = ResponsesAssembler()
    stream.feed(b"".join(sse([BEGUN, delta("output_text", "a"), completed()])) + b"data: [DONE]\n\ndata: junk\n\n")
    assert (stream.is_complete, stream.text) == (True, "a")


def test_end_in_the_middle_of_an_event_is_no_end() -> None:
    stream = ResponsesAssembler()
    stream.feed(f"data: {json.dumps(BEGUN)}\n\ndata: {json.dumps(completed())[:-2]}".encode())
    stream.finish()
    assert not stream.is_complete
