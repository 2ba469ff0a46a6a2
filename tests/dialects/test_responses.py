import json
from typing import Any

import pytest

from vfx.dialects.base import Earlier
from vfx.dialects.responses import extend, read_completion, read_earlier, read_prompt, read_sampling
from vfx.messages import Message, ToolCall, Usage

Object = dict[str, Any]


def prompt(*items: Any, **fields: Any) -> list[Message]:
    return read_prompt({"input": list(items), **fields})


def answer(*items: Object, **fields: Any) -> Message:
    (message,) = read_completion({"status": "completed", "output": list(items), **fields}).messages
    return message


# Requests


def test_text_is_a_user_message_and_instructions_are_a_system_message() -> None:
    system, user = read_prompt({"instructions": "Be brief.", "input": "a"})
    assert (system.role, system.text, user) == ("system", "Be brief.", Message("user", "a"))


def test_prompt_of_every_kind_of_item() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    see = {"type": "input_text", "text": "see"}
    assert prompt(
        {"role": "developer", "content": "rules", "vendor": 1},
        {"type": "message", "role": "user", "content": [see, image]},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "z",
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}], "phase": "final"},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": ""},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "free"},
        {"type": "function_call_output", "call_id": "c1", "output": [see, image]},
        {"type": "custom_tool_call_output", "call_id": "c2"},
        {"role": "assistant", "content": "done"},
    ) == [
        Message("developer", "rules", extra={"vendor": 1}),
        Message("user", [see, image]),
        Message(
            "assistant",
            "ok",
            (ToolCall("c1", "f", ""), ToolCall("c2", "g", "free", "custom")),
            reasoning="hm",
            extra={"phase": "final"},
            opaque=({"type": "reasoning", "encrypted_content": "z"},),
        ),
        Message("tool", [see, image], tool_call_id="c1"),
        Message("tool", None, tool_call_id="c2"),
        Message("assistant", "done"),
    ]


def test_calls_of_other_tools_are_calls_and_their_outputs_results() -> None:
    action = {"type": "exec", "command": ["ls", "é"]}
    call, result = prompt(
        {"type": "local_shell_call", "id": "lsc", "call_id": "c", "status": "completed", "action": action},
        {"type": "local_shell_call_output", "call_id": "c", "output": "a"},
    )
    assert call.tool_calls == (
        ToolCall("c", "local_shell", json.dumps({"action": action}, ensure_ascii=False), "local_shell"),
    )
    assert (result.role, result.content, result.tool_call_id) == ("tool", "a", "c")


def test_items_of_the_providers_own_tools_are_content_in_their_order() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "x"}}
    cited = {"type": "output_text", "text": "ok", "annotations": [{"type": "url_citation"}]}
    (message,) = prompt(
        search, {"type": "message", "role": "assistant", "content": [cited]}, {"type": "item_reference", "id": "i"}
    )
    assert message.content == [
        {"action": {"query": "x"}, "type": "web_search_call"},
        cited,
        {"type": "item_reference", "id": "i"},
    ]
    assert message.text == "ok"


def test_approval_of_a_call_is_a_result() -> None:
    item = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
    assert prompt(item) == [Message("tool", [item], tool_call_id="a")]


def test_prompt_may_lie_with_the_provider() -> None:
    assert read_prompt({"prompt": {"id": "pmpt_1"}}) == []
    assert read_prompt({"previous_response_id": "resp_1"}) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input: expected text or a list of items, got NoneType"),
        ({"input": {}}, "input: expected text or a list of items, got dict"),
        ({"input": ["a"]}, "input[0]: expected an object, got str"),
        ({"input": [{"content": "a"}]}, "input[0].role: expected text, got None"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content: expected text or a list of parts, got int"),
        ({"input": [{"role": "user", "content": [5]}]}, "input[0].content[0]: expected an object, got int"),
        ({"input": "a", "instructions": 5}, "instructions: expected text or a list of parts, got int"),
    ],
)
def test_what_is_no_prompt_is_told_with_its_place(body: Object, words: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_prompt(body)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("body", "earlier"),
    [
        ({}, None),
        ({"previous_response_id": None, "conversation": None}, None),
        ({"previous_response_id": "r"}, Earlier("r", is_growing=False)),
        ({"conversation": "c"}, Earlier("c", is_growing=True)),
        ({"conversation": {"id": "c"}}, Earlier("c", is_growing=True)),
    ],
)
def test_what_a_request_goes_on_from(body: Object, earlier: Earlier | None) -> None:
    assert read_earlier(body) == earlier


def test_earlier_instructions_are_forgotten() -> None:
    earlier = read_prompt({"instructions": "old", "input": "a"})
    texts = [message.text for message in extend(earlier, read_prompt({"instructions": "new", "input": "b"}))]
    assert texts == ["new", "a", "b"]
    assert [message.text for message in extend(earlier, read_prompt({"input": "b"}))] == ["a", "b"]


def test_sampling_is_what_bears_on_the_answer() -> None:
    body = {"model": "m", "temperature": 0, "reasoning": {"effort": "low"}, "store": True, "top_p": None, "odd": 1}
    assert read_sampling(body, also=("odd", "model")) == {"temperature": 0, "reasoning": {"effort": "low"}, "odd": 1}


# Answers


def test_all_of_an_answer_is_kept() -> None:
    message = answer(
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "raw"}], "summary": [{"text": "short"}]},
        {
            "type": "message",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
            "x": 1,
        },
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": None, "namespace": "n"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": {"odd": 1}},
    )
    assert (message.reasoning, message.content, message.refusal) == ("raw", "a", "no")
    assert message.tool_calls == (ToolCall("c", "f", ""), ToolCall("d", "g", '{"odd": 1}', "custom"))
    assert message.extra == {"x": 1, "namespace": "n"}


def test_usage_is_read_and_the_unknown_stays_unknown() -> None:
    usage: Object = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 8}}
    body: Object = {"status": "completed", "output": []}
    assert read_completion(body | {"usage": usage}).usage == Usage(9, 4, 8)
    assert read_completion(body).usage == Usage()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "completed"}, "completed"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete"}, "incomplete"),
        ({"status": "odd"}, "odd"),
        ({}, None),
    ],
)
def test_finish_reason_is_in_the_providers_words(fields: Object, reason: str | None) -> None:
    assert read_completion({"output": [], **fields}).finish_reasons == (reason,)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "output: expected a list of items, got NoneType"),
        ({"output": ["a"]}, "output[0]: expected an object, got str"),
        ({"output": [], "status": "failed", "error": {"message": "oops"}}, "status: it has failed: oops"),
        ({"output": [], "status": "cancelled"}, "status: it was cancelled: it does not say why"),
        ({"output": [], "status": "in_progress"}, "in the background"),
    ],
)
def test_what_is_no_answer_is_told(body: Object, words: str) -> None:
    with pytest.raises(ValueError, match=r"output|status") as caught:
        read_completion(body)
    assert words in str(caught.value)
