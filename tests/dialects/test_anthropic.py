import json
from typing import Any

import pytest

from vfx.dialects.anthropic import error_body, read_completion, read_prompt, read_sampling, read_usage
from vfx.messages import Message, ToolCall, Usage

Object = dict[str, Any]

CACHE = {"cache_control": {"type": "ephemeral"}}
IMAGE: Object = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}


def prompt(*messages: Any, **fields: Any) -> list[Message]:
    return read_prompt({"messages": list(messages), **fields})


def answer(*blocks: Object) -> Message:
    (message,) = read_completion({"type": "message", "content": list(blocks)}).messages
    return message


# Requests


def test_system_prompt_comes_first() -> None:
    blocks = [{"type": "text", "text": "a", **CACHE}, {"type": "text", "text": "b"}]
    assert prompt(system="Be brief.") == [Message("system", "Be brief.")]
    assert prompt(system=[{"type": "text", "text": "a", **CACHE}]) == [Message("system", "a")]
    assert prompt(system=blocks) == [Message("system", blocks)]
    assert prompt(system=[]) == prompt(system="") == prompt(system=None) == []


def test_line_that_a_program_writes_anew_each_time_is_not_of_the_system_prompt() -> None:
    billing = "x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"
    (system,) = prompt(system=[{"type": "text", "text": billing}, {"type": "text", "text": "Be brief.", **CACHE}])
    assert system == Message("system", "Be brief.", extra={"billing": [billing]})


def test_results_are_messages_between_what_stands_around_them() -> None:
    one: Object = {"type": "tool_result", "tool_use_id": "a", "content": "1", **CACHE}
    two: Object = {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}, IMAGE]}
    none: Object = {"type": "tool_result", "tool_use_id": "c", "is_error": True}
    assert prompt(
        {"role": "user", "content": [one, two, none, {"type": "text", "text": "Go on.", **CACHE}, IMAGE]}
    ) == [
        Message("tool", "1", tool_call_id="a"),
        Message("tool", [{"type": "text", "text": "2"}, IMAGE], tool_call_id="b"),
        Message("tool", None, tool_call_id="c", extra={"is_error": True}),
        Message("user", [{"type": "text", "text": "Go on.", **CACHE}, IMAGE]),
    ]
    assert [message.role for message in prompt({"role": "user", "content": [IMAGE, one, IMAGE]})] == [
        "user",
        "tool",
        "user",
    ]


def test_message_without_content_is_one() -> None:
    assert prompt({"role": "user", "content": []}, {"role": "assistant", "content": ""}) == [
        Message("user"),
        Message("assistant", opaque=[]),
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "messages: expected a list of messages, got NoneType"),
        ({"messages": ["a"]}, "messages[0]: expected an object, got str"),
        ({"messages": [{"content": "a"}]}, "messages[0].role: expected text, got None"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content: expected text or a list of blocks, got int",
        ),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]: expected an object, got int"),
        ({"messages": [], "system": 5}, "system: expected text or a list of blocks, got int"),
    ],
)
def test_what_is_no_prompt_is_told_with_its_place(body: Object, words: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_prompt(body)
    assert str(caught.value) == words


def test_sampling_is_what_bears_on_the_answer() -> None:
    body = {"model": "m", "max_tokens": 5, "thinking": {"type": "disabled"}, "stream": True, "top_k": None, "odd": 1}
    assert read_sampling(body, also=("odd",)) == {"max_tokens": 5, "thinking": {"type": "disabled"}, "odd": 1}


# Answers


def test_all_of_an_answer_is_kept() -> None:
    server: Object = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    message = answer(
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "thinking", "thinking": "so", "signature": ""},
        server,
        {"type": "text", "text": "ok", "citations": [{"cited_text": "c"}]},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "é"}},
        {"type": "tool_use", "id": "b", "name": "g", "input": None},
    )
    assert (message.reasoning, message.text) == ("hm\n\nso", "ok")
    assert message.content == [server, {"type": "text", "text": "ok", "citations": [{"cited_text": "c"}]}]
    assert message.tool_calls == (ToolCall("a", "f", '{"x": "é"}'), ToolCall("b", "g", "{}"))
    assert message.opaque == [{"type": "thinking", "signature": "sig"}, {"type": "redacted_thinking", "data": "zz"}]


def test_cached_tokens_are_part_of_the_input() -> None:
    usage = {"input_tokens": 2, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 10, "output_tokens": 4}
    assert read_usage(usage) == Usage(42, 4, 30)
    assert read_usage({"input_tokens": 2, "output_tokens": 4}) == Usage(2, 4)
    assert read_usage({"cache_read_input_tokens": None}) == read_usage(None) == Usage()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "content: there is none"),
        ({"content": 5}, "content: expected text or a list of blocks, got int"),
        ({"content": [5]}, "content[0]: expected an object, got int"),
        ({"type": "error", "error": {"type": "api_error", "message": "oops"}}, "it is an error: oops"),
    ],
)
def test_what_is_no_answer_is_told(body: Object, words: str) -> None:
    with pytest.raises(ValueError, match=r"content|error") as caught:
        read_completion(body)
    assert words in str(caught.value)


def test_error_has_the_form_that_sdks_expect() -> None:
    assert json.loads(error_body("no \ud835", type="server_error")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "no \ud835"},
    }
    assert json.loads(error_body("no", type="invalid_request_error", code="c"))["error"]["code"] == "c"
