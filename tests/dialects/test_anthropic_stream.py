from typing import Any

import pytest

from tests.support.native_replies import message_events, sse
from vfx.dialects.anthropic_stream import AnthropicAssembler
from vfx.messages import ToolCall, Usage

Object = dict[str, Any]

BEGUN: Object = {
    "type": "message_start",
    "message": {"id": "i", "model": "m", "content": [], "usage": {"input_tokens": 5}},
}
STOP: Object = {"type": "message_stop"}


def assemble(*events: Object) -> AnthropicAssembler:
    stream = AnthropicAssembler()
    stream.feed(b"".join(sse(events)))
    stream.finish()
    return stream


def delta(kind: str, index: int = 0, **fields: Any) -> Object:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def start(index: int = 0, **block: Any) -> Object:
    return {"type": "content_block_start", "index": index, "content_block": block}


def test_arguments_are_kept_as_the_model_wrote_them() -> None:
    tool = start(type="tool_use", id="a", name="f", input={})
    pieces = [delta("input_json_delta", partial_json=piece) for piece in ('{"a":', ' 1, "a"', ": 2}")]
    (message,) = assemble(BEGUN, tool, *pieces, STOP).completion().messages
    assert message.tool_calls == (ToolCall("a", "f", '{"a": 1, "a": 2}'),)


@pytest.mark.parametrize("pieces", [[], [""]])
def test_tool_without_arguments_gets_an_empty_object(pieces: list[str]) -> None:
    tool = start(type="tool_use", id="a", name="f", input={})
    deltas = [delta("input_json_delta", partial_json=piece) for piece in pieces]
    (message,) = assemble(BEGUN, tool, *deltas, STOP).completion().messages
    assert message.tool_calls == (ToolCall("a", "f", "{}"),)


@pytest.mark.parametrize(("text", "given"), [('{"query": "é"}', {"query": "é"}), ('{"query', '{"query')])
def test_input_of_the_providers_own_tool_is_what_comes_back(text: str, given: Any) -> None:
    tool = start(type="server_tool_use", id="s", name="web_search", input={})
    (message,) = assemble(BEGUN, tool, delta("input_json_delta", partial_json=text), STOP).completion().messages
    assert message.content == [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": given}]


def test_counts_at_the_end_are_totals() -> None:
    ends: Object = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 9, "input_tokens": None},
    }
    completion = assemble(BEGUN, ends, STOP).completion()
    assert (completion.usage, completion.finish_reasons) == (Usage(5, 9), ("end_turn",))
    assert (completion.id, completion.model) == ("i", "m")


def test_block_that_was_never_begun_and_events_of_other_kinds_do_no_harm() -> None:
    odd = [{"type": "odd"}, {"type": "ping"}, delta("odd_delta"), delta("text_delta", text="a"), delta("text_delta")]
    stream = assemble(BEGUN, *odd, start(1, type="text", text="b"), delta("text_delta", 1, text="c"), STOP)
    assert (stream.is_complete, stream.text) == (True, "abc")


def test_half_characters_in_two_events_become_one() -> None:
    halves = [delta("text_delta", text="\ud83c"), delta("text_delta", text="\udf0d")]
    assert assemble(BEGUN, start(type="text", text=""), *halves).text == "\U0001f30d"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "oops"}},
            "the provider sent an error: oops",
        ),
        (delta("text_delta", text=5), "an event is malformed: text_delta: expected text, got int"),
        (BEGUN | {"message": 5}, "an event is malformed: message: expected an object, got int"),
        (start() | {"content_block": 5}, "an event is malformed: content_block: expected an object, got int"),
        (
            {"type": "message_delta", "delta": {}, "usage": 5},
            "an event is malformed: usage: expected an object, got int",
        ),
    ],
)
def test_what_is_no_answer_is_told_and_what_came_stays(event: Object, words: str) -> None:
    stream = assemble(BEGUN, delta("text_delta", text="ab"), event, STOP)
    assert stream.error == words
    assert (stream.is_complete, stream.text) == (False, "ab")


def test_end_without_a_beginning_is_no_answer() -> None:
    stream = assemble(STOP)
    assert (stream.error, stream.is_complete) == ("an event is malformed: message_stop: no message has begun", False)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_stream_that_lacks_its_end_is_not_complete(missing: int) -> None:
    stream = assemble(*message_events("ab")[:-missing])
    assert (stream.is_complete, stream.error, stream.text) == (False, None, "ab")
    assert stream.completion().finish_reasons == ("end_turn" if missing == 1 else None,)
