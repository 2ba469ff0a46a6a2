"""Intercept hooks between a real program and a scripted provider, in each dialect, whole and streamed."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import httpx
import openai
import pytest

from tests.interception.stage import new_session, staged
from tests.support.provider import Reply, completion, stream
from vfx.dialects.routes import DIALECTS
from vfx.errors import TaskError
from vfx.interception.rewriting import Intercept, Rewriter
from vfx.interception.session import Session
from vfx.messages import Message

pytestmark = pytest.mark.anyio

CALLS = [
    {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    for n, name in enumerate(("rm", "ls"))
]


def hooked(direction: str, function: Callable[[Message], Message | None]) -> Session:
    session = new_session()

    async def call(message: Message) -> Message | None:
        return function(message)

    session.rewriter = Rewriter([Intercept("guard", direction, call)], session.trace)
    return session


def censor(message: Message) -> Message | None:
    return replace(message, content="[cut]") if "secret" in message.text else None


def refuse_rm(message: Message) -> Message | None:
    kept = tuple(call for call in message.tool_calls if call.name != "rm")
    return None if kept == message.tool_calls else replace(message, content="rm is refused", tool_calls=kept)


# Requests

TOOL_TURNS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": "secret"},
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c0", "content": "the secret", "x": 1},
            {"role": "tool", "tool_call_id": "c1", "content": "plain"},
        ]
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "secret"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}} for n in (0, 1)],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c0", "content": "the secret", "is_error": False},
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "plain"}]},
                    {"type": "text", "text": "secret"},
                ],
            },
        ],
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": "secret"},
            {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c0", "output": "the secret", "id": "x"},
            {"type": "function_call_output", "call_id": "c1", "output": "plain"},
        ]
    },
}


@pytest.mark.parametrize("route", DIALECTS)
async def test_the_model_is_sent_a_rewritten_tool_result_and_nothing_else_changes(route: str) -> None:
    body = {"model": "m", "x": [1.0, None], **TOOL_TURNS[route]}
    session = hooked("request", censor)
    async with staged(session=session) as stage:
        for _ in range(2):
            await stage.http.post(route.removeprefix("/v1"), json=body)
        sent = [request.json() for request in stage.provider.requests]
    expected = json.loads(json.dumps(body).replace("the secret", "[cut]"))
    assert sent == [expected, expected]
    assert [rewrite.before.text for rewrite in session.trace.rewrites] == ["the secret"]


async def test_the_trace_has_what_the_model_saw_and_the_rewrite() -> None:
    session = hooked("request", censor)
    async with staged(session=session) as stage:
        await stage.post(TOOL_TURNS["/v1/chat/completions"])
    assert [node.message.text for node in session.trace.nodes if node.message.role == "tool"] == ["[cut]", "plain"]
    record = session.trace.to_record()["rewrites"]
    assert [(entry["hook"], entry["direction"], entry["after"]["content"]) for entry in record] == [
        ("guard", "request", "[cut]")
    ]


async def test_a_rewritten_result_is_pinned_over_turns() -> None:
    seen: list[str] = []

    def count(message: Message) -> Message:
        seen.append(message.text)
        return replace(message, content=f"seen {len(seen)}")

    history = [*TOOL_TURNS["/v1/chat/completions"]["messages"]]
    async with staged(session=hooked("request", count)) as stage:
        for turn in range(3):
            await stage.post(messages=[*history, *({"role": "user", "content": str(n)} for n in range(turn))])
        sent = [request.json()["messages"][2]["content"] for request in stage.provider.requests]
    assert sent == ["seen 1"] * 3
    assert len(seen) == 2


# Answers

CLAUDE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Cleaning."},
        {"type": "tool_use", "id": "c0", "name": "rm", "input": {}},
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 3},
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Cleaning.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_0",
            "call_id": "c0",
            "name": "rm",
            "arguments": "{}",
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "ls",
            "arguments": '{"a":1}',
            "status": "completed",
        },
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8},
}


def whole(body: dict[str, Any]) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


def events(*fields: dict[str, Any]) -> Reply:
    chunks = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in fields]
    return Reply(200, {"Content-Type": "text/event-stream"}, chunks=chunks)


async def test_a_refused_call_of_a_chat_completion_is_left_out() -> None:
    reply = completion("Cleaning.", tool_calls=CALLS, finish_reason="tool_calls")
    session = hooked("response", refuse_rm)
    async with staged(reply, session=session) as stage:
        choice = (await stage.post()).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "rm is refused", "tool_calls": CALLS[1:]}
    assert choice["finish_reason"] == "tool_calls"
    # The graph has what the model wrote, the rewrites what became of it.
    assert [len(node.message.tool_calls) for node in session.trace.nodes if node.sampled] == [2]
    assert [rewrite.after.text for rewrite in session.trace.rewrites] == ["rm is refused"]


async def test_an_answer_without_its_only_call_ends_the_turn_for_the_program() -> None:
    reply = completion(None, tool_calls=CALLS[:1], finish_reason="tool_calls")
    async with staged(reply, session=hooked("response", refuse_rm)) as stage:
        choice = (await stage.post()).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "rm is refused"}
    assert choice["finish_reason"] == "stop"
    assert stage.call.finish_reasons == ("tool_calls",)


async def test_a_refused_call_of_a_claude_message_is_left_out() -> None:
    async with staged(whole(CLAUDE), session=hooked("response", refuse_rm)) as stage:
        body = (await stage.http.post("/messages", json={**TOOL_TURNS["/v1/messages"], "model": "m"})).json()
    texts = [CLAUDE["content"][0], {"type": "text", "text": "rm is refused"}, CLAUDE["content"][3]]
    assert body == {**CLAUDE, "content": texts}


async def test_a_refused_call_of_a_response_is_left_out() -> None:
    async with staged(whole(RESPONSE), session=hooked("response", refuse_rm)) as stage:
        body = (await stage.http.post("/responses", json={"model": "m", "input": "x"})).json()
    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call"]
    assert body["output"][1]["content"][0]["text"] == "rm is refused"
    assert body["output"][2] == RESPONSE["output"][3]


CHUNK = {"id": "1", "object": "chat.completion.chunk", "model": "m", "created": 1}


def chat_stream() -> Reply:
    def part(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return b"data: " + json.dumps({**CHUNK, "choices": [choice]}).encode() + b"\n\n"

    def piece(index: int, **fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, **fields}]}

    calls = [
        piece(n, id=f"c{n}", type="function", function={"name": name, "arguments": ""})
        for n, name in enumerate(("rm", "ls"))
    ]
    chunks = [
        part({"role": "assistant", "content": ""}),
        part({"content": "Clea"}),
        part({"content": "ning."}),
        part(calls[0]),
        part(piece(0, function={"arguments": "{}"})),
        part(calls[1]),
        part(piece(1, function={"arguments": '{"a":1}'})),
        part({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    return Reply(200, {"Content-Type": "text/event-stream"}, chunks=chunks)


async def test_a_refused_call_is_left_out_of_a_stream() -> None:
    session = hooked("response", refuse_rm)
    async with (
        staged(chat_stream(), session=session) as stage,
        openai.AsyncOpenAI(base_url=stage.slot.base_url, api_key=stage.slot.api_key) as sdk,
        sdk.chat.completions.stream(model="x", messages=[{"role": "user", "content": "x"}]) as answer,
    ):
        message = (await answer.get_final_completion()).choices[0].message
    assert message.content == "rm is refused"
    assert [(call.id, call.function.arguments) for call in message.tool_calls or ()] == [("c1", '{"a":1}')]
    assert [len(node.message.tool_calls) for node in session.trace.nodes if node.sampled] == [2]


def claude_stream() -> Reply:
    def start(index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    def stop(index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    return events(
        {"type": "message_start", "message": {**CLAUDE, "content": [], "stop_reason": None}},
        start(0, type="text", text=""),
        delta(0, type="text_delta", text="Clea"),
        delta(0, type="text_delta", text="ning."),
        stop(0),
        start(1, type="tool_use", id="c0", name="rm", input={}),
        delta(1, type="input_json_delta", partial_json="{}"),
        stop(1),
        start(2, type="tool_use", id="c1", name="ls", input={}),
        delta(2, type="input_json_delta", partial_json='{"a":1}'),
        stop(2),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )


def responses_stream() -> Reply:
    opening: dict[str, Any] = {**RESPONSE, "status": "in_progress", "output": []}
    fields: list[dict[str, Any]] = [{"type": "response.created", "response": opening}]
    for index, item in enumerate(RESPONSE["output"]):
        fields.append({"type": "response.output_item.added", "output_index": index, "item": item})
        fields.append({"type": "response.output_item.done", "output_index": index, "item": item})
    fields.append({"type": "response.completed", "response": RESPONSE})
    return events(*({**each, "sequence_number": number} for number, each in enumerate(fields)))


@pytest.mark.parametrize(("route", "reply"), [("/v1/messages", claude_stream()), ("/v1/responses", responses_stream())])
async def test_a_rewritten_stream_of_the_other_dialects_reads_as_rewritten(route: str, reply: Reply) -> None:
    body = {**TOOL_TURNS[route], "model": "m", "stream": True}
    async with staged(reply, session=hooked("response", refuse_rm)) as stage:
        response = await stage.http.post(route.removeprefix("/v1"), json=body)
    assembler = DIALECTS[route].assemble(body)
    assembler.feed(response.content)
    assert (assembler.error, assembler.is_complete, assembler.is_done) == (None, True, True)
    [message] = assembler.completion().messages
    assert message.text == "rm is refused"
    assert [(call.id, json.loads(call.arguments)) for call in message.tool_calls] == [("c1", {"a": 1})]
    assert response.content.count(b"event: ") == response.content.count(b"data: ")


@pytest.mark.parametrize("reply", [stream("a", "b"), completion("ab")])
async def test_what_a_hook_leaves_alone_passes_byte_for_byte(reply: Reply) -> None:
    async with staged(reply, session=hooked("response", lambda message: None)) as stage:
        response = await stage.post(stream=reply.chunks is not None)
    assert response.content == (reply.body or b"".join(reply.chunks or ()))
    assert stage.session.trace.rewrites == []


async def test_a_stream_that_is_held_back_is_kept_alive() -> None:
    reply = stream("a", "b", chunk_delay=0.1)
    async with staged(reply, session=hooked("response", lambda message: None), keep_alive=0.05) as stage:
        response = await stage.post(stream=True)
    comments, rest = response.content.split(b"data:", 1)
    assert comments.startswith(b": keep-alive\n\n")
    assert b"data:" + rest == b"".join(reply.chunks or ())


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_retry_gets_the_rewritten_bytes(is_stream: bool) -> None:
    reply = chat_stream() if is_stream else completion("x", tool_calls=CALLS)
    async with staged(reply, session=hooked("response", refuse_rm)) as stage:
        one, other = [await stage.post(headers={"Idempotency-Key": "k"}, stream=is_stream) for _ in range(2)]
    assert one.content == other.content
    assert len(stage.session.trace.rewrites) == 1


@pytest.mark.parametrize("direction", ["request", "response"])
async def test_a_hook_that_fails_fails_the_rollout_for_good(direction: str) -> None:
    def fail(message: Message) -> None:
        raise TaskError("intercept 'guard': KeyError: 'x'")

    session = hooked(direction, fail)
    async with staged(session=session) as stage:
        refused = [await stage.post(TOOL_TURNS["/v1/chat/completions"]) for _ in range(2)]
        assert len(stage.provider.requests) == (0 if direction == "request" else 1)
    assert {response.json()["error"]["message"] for response in refused} == {
        "rollout failed: intercept 'guard': KeyError: 'x'"
    }
    assert isinstance(session.error, TaskError)


async def test_a_hook_that_fails_on_a_stream_breaks_it() -> None:
    def fail(message: Message) -> None:
        raise TaskError("intercept 'guard': KeyError: 'x'")

    session = hooked("response", fail)
    async with staged(stream("a"), session=session) as stage:
        with anyio.fail_after(5), pytest.raises(httpx.RemoteProtocolError):
            await stage.post(stream=True)
    assert isinstance(session.error, TaskError)


async def test_a_result_whose_content_can_not_be_changed_fails_the_rollout_in_words() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": True}
    session = hooked("request", lambda message: replace(message, content="no"))
    async with staged(session=session) as stage:
        response = await stage.http.post("/responses", json={"model": "m", "input": [approval]})
        assert stage.provider.requests == []
    assert response.status_code == 400
    assert "an intercept changed a tool result whose content can't be changed" in response.json()["error"]["message"]
    assert isinstance(session.error, TaskError)
