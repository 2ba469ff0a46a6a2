import json
from typing import Any

import pytest

from vfx.dialects.chat import (
    error_body,
    impose,
    read_completion,
    read_message,
    read_prompt,
    read_sampling,
    write_message,
)
from vfx.messages import Message, Sampling, ToolCall, Usage


def answer(message: Any, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **fields}


# Requests


def test_prompt_of_every_kind_of_message() -> None:
    image = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": image, "name": "eve"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "audio": {"id": "a"}},
    ]
    assert read_prompt({"messages": messages}) == [
        Message("developer", "be brief"),
        Message("user", image, name="eve"),
        Message("assistant", None, (ToolCall("c", "f", "{}"),)),
        Message("tool", None, tool_call_id="c"),
        Message("assistant", "", reasoning="hm", extra={"audio": {"id": "a"}}),
    ]


NOT_PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({}, "messages: expected a list of messages, got NoneType"),
    ({"messages": {}}, "messages: expected a list of messages, got dict"),
    ({"messages": [None]}, "messages[0]: expected an object, got NoneType"),
    ({"messages": [{"role": "user"}, {"role": 1}]}, "messages[1].role: expected text, got 1"),
    ({"messages": [{"content": "x"}]}, "messages[0].role: expected text, got None"),
    (
        {"messages": [{"role": "user", "content": {}}]},
        "messages[0].content: expected text or a list of parts, got dict",
    ),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]: expected an object, got str"),
]


@pytest.mark.parametrize(("body", "words"), NOT_PROMPTS)
def test_prompt_that_is_none_says_where(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="messages") as caught:
        read_prompt(body)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "message",
    [
        Message("user", "hi"),
        Message("assistant", None, (ToolCall("c", "f", '{"a":1}'), ToolCall("d", "sh", "ls", "custom"))),
        Message("tool", "42", tool_call_id="c"),
        Message("assistant", "no", refusal="no", name="bob", extra={"audio": {"id": "a"}}),
    ],
)
def test_written_message_reads_back(message: Message) -> None:
    assert read_message(write_message(message)) == message


# Answers


def test_answer_keeps_what_is_unusual_but_valid() -> None:
    message = {"content": None, "refusal": "no", "reasoning": "r", "vendor": {"score": 0}, "flag": False, "none": None}
    completion = read_completion(answer(message, id="i", model="m", service_tier="odd", usage=None))
    assert completion.messages == (
        Message("assistant", None, reasoning="r", refusal="no", extra={"vendor": {"score": 0}, "flag": False}),
    )
    assert (completion.usage, completion.model, completion.id) == (Usage(), "m", "i")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"id": "a", "function": {"name": "f", "arguments": "{}"}}, ToolCall("a", "f", "{}")),
        ({"type": "function", "function": {"name": "f"}}, ToolCall("", "f", "")),
        ({"id": "a", "custom": {"name": "sh", "input": "ls"}}, ToolCall("a", "sh", "ls", "custom")),
        ({"id": "a", "type": "odd", "odd": {"name": "x", "arguments": "y"}}, ToolCall("a", "x", "y", "odd")),
        ({"id": 5, "function": {"name": "f", "arguments": {"a": 1}}}, ToolCall("5", "f", '{"a": 1}')),
        ({"id": "a", "type": ["x"], "function": "f"}, ToolCall("a", "", "", "['x']")),
    ],
)
def test_tool_call_of_any_form_is_read(raw: dict[str, Any], expected: ToolCall) -> None:
    assert read_message({"tool_calls": [raw, None]}).tool_calls == (expected,)


@pytest.mark.parametrize("calls", [None, [], "x", 5, {}])
def test_tool_calls_that_are_no_list_are_none(calls: Any) -> None:
    assert read_message({"content": "x", "tool_calls": calls}).tool_calls == ()


def test_reasoning_that_is_no_text_is_kept_as_it_is() -> None:
    message = read_message({"content": "x", "reasoning": {"summary": "s"}})
    assert (message.reasoning, message.extra) == (None, {"reasoning": {"summary": "s"}})


def test_several_choices_are_read() -> None:
    choices = [{"message": {"content": text}, "finish_reason": text} for text in "ab"]
    completion = read_completion({"choices": choices})
    assert [message.text for message in completion.messages] == ["a", "b"]
    assert completion.finish_reasons == ("a", "b")


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, Usage(3, 4)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(3, 4, 1, 2),
        ),
        ({"prompt_tokens": None, "completion_tokens": True, "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens_details": [], "completion_tokens_details": "x"}, Usage()),
        ([], Usage()),
        (None, Usage()),
    ],
)
def test_usage_that_is_not_told_stays_unknown(raw: Any, usage: Usage) -> None:
    assert read_completion(answer({"content": "x"}, usage=raw)).usage == usage


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "choices: expected at least one, got none"),
        ({"choices": []}, "choices: expected at least one, got none"),
        ({"choices": {"a": 1}}, "choices: expected at least one, got dict"),
        ({"choices": [None]}, "choices[0].message: expected an object, got NoneType"),
        ({"choices": [{"message": "x"}]}, "choices[0].message: expected an object, got str"),
    ],
)
def test_what_is_no_answer_says_so(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="choices") as caught:
        read_completion(body)
    assert str(caught.value) == words


# What the eval imposes


def test_imposed_settings_replace_and_the_rest_keeps_its_order() -> None:
    body: dict[str, Any] = {"temperature": 1, "messages": [], "model": "a", "x": None, "top_p": 0.5}
    imposed = impose(body, "b", Sampling(temperature=0.2, seed=1, stop=("z",), extra={"top_k": 4}))
    assert list(imposed.items()) == [
        ("temperature", 0.2),
        ("messages", []),
        ("model", "b"),
        ("x", None),
        ("top_p", 0.5),
        ("top_k", 4),
        ("seed", 1),
        ("stop", ["z"]),
    ]


def test_body_that_says_the_same_is_equal_afterwards() -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": "x"}], "temperature": 0}
    assert impose(body, "a", Sampling(temperature=0)) == body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {"max_tokens": 9}),
        ({"max_tokens": 5}, {"max_tokens": 9}),
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 9}),
    ],
)
def test_bound_on_the_answer_goes_by_the_name_that_the_program_uses(
    body: dict[str, int], expected: dict[str, int]
) -> None:
    assert impose(body, "m", Sampling(max_tokens=9)) == {"model": "m", **expected}


def test_effective_sampling_leaves_out_what_is_none_of_it() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "messages": [],
        "temperature": 0,
        "n": 2,
        "seed": None,
        "guided": "g",
        "tools": [],
    }
    assert read_sampling(body, also=["guided", "model"]) == {"temperature": 0, "n": 2, "guided": "g"}


# Errors


def test_error_has_the_form_that_sdks_expect() -> None:
    assert json.loads(error_body("no \ud835", type="t", code="c")) == {
        "error": {"message": "no \ud835", "type": "t", "param": None, "code": "c"}
    }
