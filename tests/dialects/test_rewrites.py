import json
from dataclasses import replace
from typing import Any

import pytest

from vfx.dialects.rewrites import REWRITES
from vfx.dialects.routes import DIALECTS
from vfx.messages import Message, ToolCall

CHAT, CLAUDE, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
CALL = ToolCall("c0", "rm", "{}")


def sse(*fields: dict[str, Any]) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in fields)


def test_only_the_changed_choice_of_several_differs() -> None:
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} for text in "ab"]
    one, other = Message("assistant", "a"), Message("assistant", "b")
    body = REWRITES[CHAT].put_answers({"choices": choices}, [(one, one), (other, replace(other, content="B"))])
    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "B"]
    assert body["choices"][0] is choices[0]


def test_only_the_changed_choice_of_a_stream_differs() -> None:
    def part(index: int, text: str) -> dict[str, Any]:
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]}

    raw = b"".join(b"data: " + json.dumps(part(index, text)).encode() + b"\n\n" for index, text in ((0, "a"), (1, "b")))
    one, other = Message("assistant", "a"), Message("assistant", "b")
    new = REWRITES[CHAT].put_stream(raw + b"data: [DONE]\n\n", [(one, one), (other, replace(other, content="B"))])
    assembler = DIALECTS[CHAT].assemble({"n": 2})
    assembler.feed(new)
    assert [message.text for message in assembler.completion().messages] == ["a", "B"]
    assert assembler.is_done


@pytest.mark.parametrize("text", ["No.", ""])
def test_an_answer_of_one_call_becomes_its_refusal(text: str) -> None:
    before = Message("assistant", tool_calls=(CALL,))
    answers = [(before, Message("assistant", text))]
    use: dict[str, Any] = {"type": "tool_use", "id": "c0", "name": "rm", "input": {}}
    claude = REWRITES[CLAUDE].put_answers({"content": [use], "stop_reason": "tool_use"}, answers)
    assert claude == {"content": [{"type": "text", "text": text}] if text else [], "stop_reason": "end_turn"}
    item = {"type": "function_call", "call_id": "c0", "name": "rm", "arguments": "{}"}
    response = REWRITES[RESPONSES].put_answers({"output": [item]}, answers)
    assert [part["text"] for item in response["output"] for part in item["content"]] == [text] * bool(text)


def test_a_stream_of_one_call_becomes_its_refusal() -> None:
    use: dict[str, Any] = {"type": "tool_use", "id": "c0", "name": "rm", "input": {}}
    raw = sse(
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
    before = Message("assistant", tool_calls=(CALL,))
    assembler = DIALECTS[CLAUDE].assemble({})
    assembler.feed(REWRITES[CLAUDE].put_stream(raw, [(before, Message("assistant", "No."))]))
    answer = assembler.completion()
    assert (answer.messages[0].text, answer.messages[0].tool_calls) == ("No.", ())
    assert answer.finish_reasons == ("end_turn",)


def test_a_text_split_over_blocks_is_replaced_once() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    before = Message("assistant", blocks)
    body = REWRITES[CLAUDE].put_answers({"content": blocks}, [(before, Message("assistant", "new"))])
    assert body["content"] == [{"type": "text", "text": "new"}, {"type": "image"}]
