"""What passes both ways in every dialect: unusual but valid fields, half characters, packed bodies."""

import gzip
import json
from typing import Any

import pytest

from tests.interception.stage import staged
from tests.support.native_replies import message_stream, response_stream
from tests.support.provider import Reply, stream
from vfx.messages import Usage
from vfx.trace.reading import read_trace
from vfx.trace.record import encode_record

pytestmark = pytest.mark.anyio

Object = dict[str, Any]

IMAGE = "data:image/png;base64,iVBORw0KGgo="
CHAT_REQUEST: Object = {
    "vendor": {"b": 1, "a": [None]},
    "messages": [
        {"role": "developer", "content": "rules"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": IMAGE}}, {"type": "text", "text": "?"}],
        },
        {"content": None, "role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c"},
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "logprobs": True,
    "model": "m",
}
CHAT_ANSWER: Object = {
    "choices": [
        {
            "finish_reason": "odd_reason",
            "logprobs": {"content": []},
            "message": {
                "content": None,
                "refusal": "no",
                "reasoning": "hm",
                "tool_calls": [
                    {"id": "a", "function": {"name": "f", "arguments": None}},
                    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "free"}},
                ],
            },
        }
    ],
    "service_tier": "odd_tier",
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    "vendor": {"x": [1]},
}
RESPONSES_REQUEST: Object = {
    "vendor": {"b": 1, "a": [None]},
    "input": [
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}, {"type": "input_text", "text": "?"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        {"type": "function_call_output", "call_id": "c"},
        {"type": "odd_item", "odd": 1},
    ],
    "tool_choice": {"type": "function", "name": "f"},
    "parallel_tool_calls": False,
    "truncation": "auto",
    "model": "m",
}
RESPONSES_ANSWER: Object = {
    "output": [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "odd_item", "odd": 1},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": None},
        {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "free"},
    ],
    "status": "odd_reason",
    "service_tier": "odd_tier",
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "vendor": {"x": [1]},
}
ANTHROPIC_REQUEST: Object = {
    "vendor": {"b": 1, "a": [None]},
    "messages": [
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "url", "url": IMAGE}}, {"type": "text", "text": "?"}],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"content": [{"type": "tool_result", "tool_use_id": "c"}, {"type": "odd_block", "odd": 1}], "role": "user"},
    ],
    "max_tokens": 9,
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "context_management": {"edits": []},
    "model": "m",
}
ANTHROPIC_ANSWER: Object = {
    "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "odd_block", "odd": 1},
        {"type": "tool_use", "id": "a", "name": "f", "input": None},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"x": []}},
    ],
    "stop_reason": "odd_reason",
    "usage": {"input_tokens": 1, "output_tokens": 2, "service_tier": "odd_tier"},
    "vendor": {"x": [1]},
}
EXCHANGES = [
    ("/chat/completions", CHAT_REQUEST, CHAT_ANSWER),
    ("/responses", RESPONSES_REQUEST, RESPONSES_ANSWER),
    ("/messages", ANTHROPIC_REQUEST, ANTHROPIC_ANSWER),
]


@pytest.mark.parametrize(("path", "request_body", "answer"), EXCHANGES)
async def test_unusual_fields_pass_and_are_on_the_trace(path: str, request_body: Object, answer: Object) -> None:
    raw = json.dumps(answer).encode()
    async with staged(Reply(200, body=raw)) as stage:
        got = await stage.http.post(path, json=request_body | {"model": "theirs"})
        sent = stage.provider.requests[0]
    assert got.content == raw
    assert json.dumps(sent.json()) == json.dumps(request_body)
    assert stage.call.error is None
    assert (stage.call.finish_reasons, stage.call.usage) == (("odd_reason",), Usage(1, 2))
    message = stage.session.trace.messages[-1]
    assert (message.reasoning, [call.id for call in message.tool_calls]) == ("hm", ["a", "b"])
    assert message.refusal == (None if path == "/messages" else "no")
    kept = json.dumps(stage.session.trace.to_record()["nodes"])
    assert IMAGE in kept
    if path != "/chat/completions":
        assert kept.count('"odd": 1') == 2


@pytest.mark.parametrize(("path", "request_body", "answer"), EXCHANGES)
async def test_missing_usage_is_unknown(path: str, request_body: Object, answer: Object) -> None:
    bare = {name: value for name, value in answer.items() if name != "usage"}
    async with staged(Reply(200, body=json.dumps(bare).encode())) as stage:
        await stage.http.post(path, json=request_body)
    assert stage.call.usage == Usage()
    assert stage.session.trace.num_turns == 1


HALF = "\ud835"
HALVES: list[tuple[str, Object]] = [
    (
        "/chat/completions",
        {
            "choices": [
                {
                    "message": {
                        "content": HALF,
                        "reasoning_content": HALF,
                        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": f'{{"x":"{HALF}"}}'}}],
                    }
                }
            ]
        },
    ),
    (
        "/responses",
        {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": HALF}]},
                {"type": "message", "content": [{"type": "output_text", "text": HALF}]},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": f'{{"x":"{HALF}"}}'},
            ]
        },
    ),
    (
        "/messages",
        {
            "content": [
                {"type": "thinking", "thinking": HALF},
                {"type": "text", "text": HALF},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": HALF}},
            ]
        },
    ),
]


@pytest.mark.parametrize(("path", "answer"), HALVES)
async def test_half_characters_pass_both_ways_and_are_on_the_trace(path: str, answer: Object) -> None:
    raw = json.dumps(answer).encode()
    asked = [{"role": "user", "content": HALF}]
    body = json.dumps({"messages": asked, "input": asked, "model": "t"}).encode()
    async with staged(Reply(200, body=raw)) as stage:
        got = await stage.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert stage.provider.requests[0].json()["input"] == asked
    assert got.content == raw
    trace = read_trace(encode_record(stage.session.trace.to_record()).decode("utf-8"))
    question, message = (node.message for node in trace.nodes)
    assert (question.text, message.text, message.reasoning) == (HALF, HALF, HALF)
    assert json.loads(message.tool_calls[0].arguments) == {"x": HALF}


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/chat/completions", stream("a", "b")),
        ("/responses", response_stream("ab")),
        ("/messages", message_stream("ab")),
        ("/messages/count_tokens", Reply(200, {"Content-Type": "application/json"}, b'{"input_tokens": 3}')),
        ("/models", Reply(200, {"Content-Type": "application/json"}, b'{"data": []}')),
    ],
)
async def test_packed_bodies_are_unpacked_on_every_route(path: str, reply: Reply) -> None:
    plain = b"".join(reply.chunks or ()) or reply.body
    packed = gzip.compress(plain)
    headers = {**reply.headers, "Content-Encoding": "gzip"}
    chunks = [packed[:20], packed[20:]] if reply.chunks else None
    async with staged(Reply(200, headers, packed if chunks is None else b"", chunks=chunks)) as stage:
        body = {"model": "m", "stream": True, "input": "a", "messages": [{"role": "user", "content": "a"}]}
        method = "GET" if path == "/models" else "POST"
        got = await stage.http.request(
            method, path, json=None if method == "GET" else body, headers={"Accept-Encoding": "br, zstd, gzip"}
        )
        assert stage.provider.requests[0].headers["accept-encoding"] == "gzip, deflate"
    assert got.content == plain
    assert "content-encoding" not in got.headers
    assert stage.session.trace.last_reply == ("ab" if chunks else "")
