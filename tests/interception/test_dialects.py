"""The SDKs of OpenAI (Responses) and Anthropic as programs, against a scripted provider."""

import json
from typing import Any, cast

import anthropic
import anyio
import httpx
import openai
import pytest

from tests.interception.stage import Stage, new_session, staged
from tests.support.native_replies import (
    message,
    message_stream,
    response,
    response_events,
    response_stream,
    sse,
    text_item,
)
from tests.support.provider import Reply
from vfx.interception.session import Limits
from vfx.messages import Sampling, Usage

pytestmark = pytest.mark.anyio

Object = dict[str, Any]


def new_openai(stage: Stage) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=stage.slot.base_url, api_key=stage.slot.api_key, max_retries=0)


def new_anthropic(stage: Stage) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=stage.slot.base_url.removesuffix("/v1"), api_key=stage.slot.api_key, max_retries=0
    )


async def ask_openai(sdk: openai.AsyncOpenAI, is_stream: bool, **kwargs: Any) -> Any:
    if not is_stream:
        return cast("Any", await sdk.responses.create(**kwargs))
    async with sdk.responses.stream(**kwargs) as events:
        return cast("Any", await events.get_final_response())


async def ask_anthropic(sdk: anthropic.AsyncAnthropic, is_stream: bool, **kwargs: Any) -> Any:
    if not is_stream:
        return cast("Any", await sdk.messages.create(**kwargs))
    async with sdk.messages.stream(**kwargs) as events:
        return cast("Any", await events.get_final_message())


async def read_stream(stage: Stage, path: str, body: Object) -> tuple[bytes, bool]:
    """The bytes that came, and whether the body was ended properly."""
    got = bytearray()
    async with stage.http.stream("POST", path, json=body) as answer:
        try:
            async for piece in answer.aiter_raw():
                got += piece
        except httpx.RemoteProtocolError:
            return bytes(got), False
    return bytes(got), True


def roles(stage: Stage) -> list[str]:
    return [node.message.role for node in stage.session.trace.nodes]


# OpenAI Responses

TOOLS: Any = [
    {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "note"},
]
CALLS: list[Object] = [
    {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zz"},
    text_item("Let me see."),
    {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "c1",
        "name": "add",
        "arguments": '{"a": 1}',
        "status": "completed",
    },
    {"id": "fc_2", "type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}", "status": "completed"},
    {"id": "ct_1", "type": "custom_tool_call", "call_id": "c3", "name": "note", "input": "free \u4f60"},
]


def results_of(output: list[Any]) -> list[Object]:
    kinds = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    return [{"type": kinds[item.type], "call_id": item.call_id, "output": "2"} for item in output if item.type in kinds]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("has_ids", [False, True])
async def test_a_tool_loop_over_responses_is_one_conversation(is_stream: bool, has_ids: bool) -> None:
    make = response_stream if is_stream else response
    async with staged(make(*CALLS), make("It is 2.", id="resp_2")) as stage, new_openai(stage) as sdk:
        conversation: list[Any] = [{"role": "user", "content": "1+1"}]
        answer: Any = None
        for _ in range(2):
            kwargs: Any = {"model": "x", "input": conversation, "instructions": "Add.", "tools": TOOLS, "store": False}
            answer = await ask_openai(sdk, is_stream, **kwargs)
            forgotten = {} if has_ids else {"id": None, "status": None}
            conversation += [item.to_dict() | forgotten for item in answer.output]
            conversation += results_of(answer.output)
        assert answer.output_text == "It is 2."
    trace = stage.session.trace
    assert roles(stage) == ["system", "user", "assistant", "tool", "tool", "tool", "assistant"]
    asked = trace.nodes[2].message
    assert (asked.text, asked.reasoning) == ("Let me see.", "hm")
    assert asked.opaque == ({"type": "reasoning", "encrypted_content": "zz"},)
    assert [(call.id, call.name, call.arguments, call.type) for call in asked.tool_calls] == [
        ("c1", "add", '{"a": 1}', "function"),
        ("c2", "add", "{}", "function"),
        ("c3", "note", "free \u4f60", "custom"),
    ]
    assert (trace.last_reply, trace.usage) == ("It is 2.", Usage(10, 6, 0, 0))
    assert [call.finish_reasons for call in stage.calls] == [("completed",)] * 2


async def test_previous_response_is_put_before_the_new_input() -> None:
    replies = response("one", id="resp_a"), response("two", id="resp_b"), response("other", id="resp_c")
    async with staged(*replies) as stage, new_openai(stage) as sdk:
        first = await sdk.responses.create(model="x", instructions="Be brief.", input="a")
        await sdk.responses.create(model="x", input="b", previous_response_id=first.id)
        await sdk.responses.create(model="x", instructions="Be brief.", input="c", previous_response_id=first.id)
        assert stage.provider.requests[1].json()["previous_response_id"] == "resp_a"
    branches = [[message.text for message in branch] for branch in stage.session.trace.branches]
    assert branches == [["a", "one", "b", "two"], ["Be brief.", "a", "one", "c", "other"]]
    assert all(call.notes == () for call in stage.calls)


async def test_conversation_at_the_provider_grows_with_each_answer() -> None:
    async with staged(response("one", id="r1"), response("two", id="r2")) as stage, new_openai(stage) as sdk:
        await sdk.responses.create(model="x", input="a", conversation="conv_1")
        await sdk.responses.create(model="x", input="b", conversation={"id": "conv_1"})
    assert [message.text for message in stage.session.trace.messages] == ["a", "one", "b", "two"]
    assert [bool(call.notes) for call in stage.calls] == [True, False]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_references_to_items_of_an_answer_are_that_answer(is_stream: bool) -> None:
    make = response_stream if is_stream else response
    async with staged(make(*CALLS), make("It is 2.")) as stage, new_openai(stage) as sdk:
        answer = await ask_openai(sdk, is_stream, model="x", input="1+1")
        references = [{"type": "item_reference", "id": item.id} for item in answer.output]
        asked: list[Any] = [{"role": "user", "content": "1+1"}, *references, *results_of(answer.output)]
        await ask_openai(sdk, is_stream, model="x", input=asked)
        assert stage.provider.requests[1].json()["input"] == asked
    assert roles(stage) == ["user", "assistant", "tool", "tool", "tool", "assistant"]


async def test_unknown_previous_response_passes_and_is_noted() -> None:
    async with staged(response("two")) as stage, new_openai(stage) as sdk:
        await sdk.responses.create(model="x", input="b", previous_response_id="resp_elsewhere")
        assert stage.provider.requests[0].json()["previous_response_id"] == "resp_elsewhere"
    assert [message.text for message in stage.session.trace.messages] == ["b", "two"]
    (note,) = stage.call.notes
    assert "resp_elsewhere" in note


@pytest.mark.parametrize("make", [response, response_stream])
async def test_incomplete_response_is_an_answer_with_its_reason(make: Any) -> None:
    reply = make("cut", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    async with staged(reply) as stage:
        body = {"model": "m", "input": "a", "stream": make is response_stream}
        answer = await stage.http.post("/responses", json=body)
    assert answer.status_code == 200
    assert (stage.session.trace.last_reply, stage.call.finish_reasons) == ("cut", ("max_output_tokens",))


async def test_settings_are_imposed_on_responses_under_its_names() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, seed=3, stop=("x",), extra={"top_logprobs": 2})
    async with staged(response("a"), session=new_session(sampling=sampling)) as stage:
        await stage.http.post("/responses", json={"max_output_tokens": 99, "input": "a", "store": False, "model": "t"})
        sent = stage.provider.requests[0].json()
    imposed = {"temperature": 0.5, "top_p": 0.9, "top_logprobs": 2}
    assert sent == {"max_output_tokens": 7, "input": "a", "store": False, "model": "m", **imposed}
    assert stage.call.sampling == {"max_output_tokens": 7, **imposed}
    assert [note.split()[0] for note in stage.call.notes] == ["sampling.seed", "sampling.stop"]


async def test_responses_sdk_does_not_repeat_a_refused_turn() -> None:
    async with staged(session=new_session(limits=Limits(max_turns=0))) as stage, new_openai(stage) as sdk:
        with pytest.raises(openai.BadRequestError, match="rollout stopped: max_turns"):
            await sdk.with_options(max_retries=2).responses.create(model="x", input="a")
        assert stage.provider.requests == []


async def test_response_that_failed_or_runs_in_the_background_is_no_turn() -> None:
    failed = response(status="failed", error={"code": "server_error", "message": "oops"})
    async with staged(failed, response(status="queued")) as stage:
        for _ in range(2):
            assert (await stage.http.post("/responses", json={"model": "m", "input": "a"})).status_code == 200
    errors = [call.error.message for call in stage.calls if call.error]
    assert errors == [
        "answer is not a response: status: it has failed: oops (server_error)",
        "answer is not a response: status: it is 'queued', and answers made in the background are not followed",
    ]


# Anthropic Messages

USER: Any = {"role": "user", "content": "1+1"}
BLOCKS: list[Object] = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "zz"},
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": "\u4f60"}},
    {"type": "tool_use", "id": "t2", "name": "add", "input": {}},
]
ANTHROPIC_TOOLS: Any = [{"name": "add", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("keeps_thoughts", [False, True])
async def test_a_tool_loop_over_messages_is_one_conversation(is_stream: bool, keeps_thoughts: bool) -> None:
    make = message_stream if is_stream else message
    usage = {"input_tokens": 2, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 10, "output_tokens": 4}
    async with staged(make(*BLOCKS, usage=usage), make("It is 2.")) as stage, new_anthropic(stage) as sdk:
        conversation: list[Any] = [USER]
        answer: Any = None
        for turn in range(2):
            marked = {"type": "text", "text": "Add.", "cache_control": {"type": "ephemeral"}}
            system: Any = "Add." if turn else [marked]
            kwargs: Any = {"model": "x", "max_tokens": 9, "messages": conversation, "system": system}
            kwargs["tools"] = ANTHROPIC_TOOLS
            answer = await ask_anthropic(sdk, is_stream, **kwargs)
            kept = [block for block in answer.content if keeps_thoughts or "thinking" not in block.type]
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "2"}
                for block in answer.content
                if block.type == "tool_use"
            ]
            conversation += [{"role": "assistant", "content": kept}, {"role": "user", "content": results}]
        assert answer.content[0].text == "It is 2."
    trace = stage.session.trace
    assert roles(stage) == ["system", "user", "assistant", "tool", "tool", "assistant"]
    asked = trace.nodes[2].message
    assert (asked.text, asked.reasoning) == ("Let me see.", "hm")
    assert list(asked.opaque) == [
        {"type": "thinking", "signature": "sig"},
        {"type": "redacted_thinking", "data": "zz"},
    ]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in asked.tool_calls] == [
        ("t1", "add", {"a": 1, "b": "\u4f60"}),
        ("t2", "add", {}),
    ]
    assert (trace.last_reply, stage.calls[0].usage) == ("It is 2.", Usage(42, 4, 30))
    assert [call.finish_reasons for call in stage.calls] == [("tool_use",), ("end_turn",)]


async def test_counting_tokens_passes_for_the_evaluated_model_and_is_no_turn() -> None:
    session = new_session(limits=Limits(max_turns=0), sampling=Sampling(max_tokens=5))
    async with staged(Reply(200, body=b'{"input_tokens":12}'), session=session) as stage, new_anthropic(stage) as sdk:
        counted = await sdk.messages.count_tokens(model="x", messages=[USER])
        sent = stage.provider.requests[0]
    assert counted.input_tokens == 12
    assert (sent.path, sent.json()) == ("/v1/messages/count_tokens", {"messages": [USER], "model": "m"})
    assert stage.calls == []


async def test_settings_are_imposed_on_messages_under_its_names() -> None:
    sampling = Sampling(temperature=0.5, max_tokens=7, seed=3, stop=("x",))
    async with staged(message("a"), session=new_session(sampling=sampling)) as stage:
        await stage.http.post("/messages?beta=true", json={"messages": [USER], "max_tokens": 99, "thinking": {}})
        sent = stage.provider.requests[0]
    assert sent.path == "/v1/messages?beta=true"
    assert list(sent.json().items()) == [
        ("messages", [USER]),
        ("max_tokens", 7),
        ("thinking", {}),
        ("model", "m"),
        ("temperature", 0.5),
        ("stop_sequences", ["x"]),
    ]
    assert [note.split()[0] for note in stage.call.notes] == ["sampling.seed"]


async def test_anthropic_sdk_gets_errors_in_its_own_form() -> None:
    async with staged(session=new_session(limits=Limits(max_turns=0))) as stage, new_anthropic(stage) as sdk:
        with pytest.raises(anthropic.BadRequestError, match="rollout stopped: max_turns") as caught:
            await sdk.with_options(max_retries=2).messages.create(model="x", max_tokens=1, messages=[USER])
        with pytest.raises(anthropic.AuthenticationError):
            await sdk.with_options(api_key="wrong").messages.count_tokens(model="x", messages=[USER])
        with pytest.raises(anthropic.AuthenticationError) as denied:
            await sdk.with_options(api_key="wrong").models.list()
        assert stage.provider.requests == []
    for error in (caught.value, denied.value):
        body: Any = error.body
        assert body["type"] == "error"


# Broken streams

OVERLOADED: Object = {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}
FAILED: Object = {"type": "response.failed", "response": {"error": {"code": "c", "message": "overloaded"}}}


@pytest.mark.parametrize(
    ("path", "reply", "words"),
    [
        ("/responses", response_stream("abc", cut=3, ending="reset"), "closed the connection"),
        ("/responses", response_stream("abc", cut=3), "ended without its terminal event"),
        ("/responses", response_stream("abc", cut=1), "ended without its terminal event"),
        ("/responses", response_stream("abc", CALLS[2], cut=8), "ended without its terminal event"),
        ("/responses", response_stream("abc", cut=1, then=[FAILED]), "sent an error: overloaded (c)"),
        ("/responses", response_stream("abc", cut=1, then=[OVERLOADED]), "sent an error: overloaded"),
        ("/messages", message_stream("abc", cut=3, ending="reset"), "closed the connection"),
        ("/messages", message_stream("abc", cut=3), "ended without its terminal event"),
        ("/messages", message_stream("abc", cut=1), "ended without its terminal event"),
        ("/messages", message_stream("abc", BLOCKS[3], cut=5), "ended without its terminal event"),
        ("/messages", message_stream("abc", cut=2, then=[OVERLOADED]), "sent an error: overloaded"),
    ],
)
async def test_broken_stream_is_a_failed_call_and_looks_broken(path: str, reply: Reply, words: str) -> None:
    body = {"model": "m", "stream": True, "input": "a", "messages": [USER]}
    whole = response_stream("abc", id="resp_2") if path == "/responses" else message_stream("abc")
    async with staged(reply, whole) as stage:
        got, is_whole = await read_stream(stage, path, body)
        assert not is_whole
        assert got == b"".join(reply.chunks or ())
        assert stage.session.trace.nodes == []
        assert stage.call.error is not None
        assert stage.call.error.message.startswith("provider stream incomplete: ")
        assert words in stage.call.error.message
        assert stage.call.partial == "abc"
        await stage.http.post(path, json=body)
    assert roles(stage) == ["user", "assistant"]


async def test_sdks_fail_on_a_broken_stream() -> None:
    async with staged(response_stream("abc", cut=1), message_stream("abc", cut=1)) as stage:
        async with new_openai(stage) as sdk:
            with pytest.raises(openai.APIConnectionError):
                [event async for event in await sdk.responses.create(model="x", input="a", stream=True)]
        async with new_anthropic(stage) as claude:
            # This SDK lets the error of its HTTP library pass.
            with pytest.raises(Exception, match="peer closed"):
                await ask_anthropic(claude, True, model="x", max_tokens=9, messages=[USER])
    assert stage.session.trace.num_turns == 0


async def test_stream_that_fails_for_the_length_of_its_prompt_truncates_the_rollout() -> None:
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    failed: Object = {"type": "response.failed", "response": {"error": error}}
    async with staged(response_stream("a", cut=1, then=[failed])) as stage:
        with pytest.raises(Exception, match="peer closed"):
            await stage.http.post("/responses", json={"model": "m", "stream": True, "input": "a"})
    assert (stage.session.trace.stop_condition, stage.session.error) == ("context_length", None)


# Whole streams


@pytest.mark.parametrize(
    ("path", "reply"), [("/responses", response_stream("ab")), ("/messages", message_stream("ab"))]
)
async def test_turn_is_committed_before_the_terminal_event_is_passed_on(path: str, reply: Reply) -> None:
    held = Reply(200, reply.headers, chunks=reply.chunks, ending="hang")
    body = {"model": "m", "stream": True, "input": "a", "messages": [USER]}
    async with staged(held) as stage, stage.http.stream("POST", path, json=body) as answer:
        got, pieces = b"", answer.aiter_raw()
        with anyio.fail_after(5):
            while got != b"".join(reply.chunks or ()):
                got += await anext(pieces)
        assert stage.session.trace.last_reply == "ab"
        assert len(stage.calls) == 1


@pytest.mark.parametrize(
    ("path", "reply"),
    [("/responses", response_stream("ab", chunk_delay=0.1)), ("/messages", message_stream("ab", chunk_delay=0.1))],
)
async def test_silent_stream_is_kept_alive_and_its_events_stay_as_they_are(path: str, reply: Reply) -> None:
    body = {"model": "m", "stream": True, "input": "a", "messages": [USER]}
    async with staged(reply, keep_alive=0.03) as stage:
        got = (await stage.http.post(path, json=body)).content
    assert b": keep-alive\n\n" in got
    assert got.replace(b": keep-alive\n\n", b"") == b"".join(reply.chunks or ())


@pytest.mark.parametrize(("path", "make"), [("/responses", response_stream), ("/messages", message_stream)])
async def test_pieces_that_end_anywhere_pass_and_are_read(path: str, make: Any) -> None:
    chunks: list[bytes] = make("\u5317\u4eac \u00e9 \U0001f30d").chunks
    events = [json.loads(chunk.partition(b"data: ")[2]) for chunk in chunks]
    raw = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events).encode()
    pieces = [raw[start : start + 5] for start in range(0, len(raw), 5)]
    body = {"model": "m", "stream": True, "input": "a", "messages": [USER]}
    async with staged(Reply(200, {"Content-Type": "text/event-stream"}, chunks=pieces)) as stage:
        assert await read_stream(stage, path, body) == (raw, True)
    assert stage.session.trace.last_reply == "\u5317\u4eac \u00e9 \U0001f30d"


async def test_half_characters_in_two_events_become_one_in_the_trace() -> None:
    halves: list[Object] = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": half} for half in ("\ud83c", "\udf0d")
    ]
    begun = response_events()[0]
    done: Object = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
    reply = Reply(200, {"Content-Type": "text/event-stream"}, chunks=sse([begun, *halves, done]))
    async with staged(reply) as stage:
        body = json.dumps({"model": "m", "stream": True, "input": "a \ud800"})
        got = await stage.http.post("/responses", content=body, headers={"Content-Type": "application/json"})
    assert got.content == b"".join(reply.chunks or ())
    assert [node.message.text for node in stage.session.trace.nodes] == ["a \ud800", "\U0001f30d"]


# Headers


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages", "/messages/count_tokens", "/models"])
async def test_features_pass_on_every_route_and_credentials_do_not(path: str) -> None:
    headers = {
        "x-api-key": "mine",
        "anthropic-beta": "x",
        "anthropic-version": "2023-06-01",
        "X-Unknown": "1",
        "Accept-Encoding": "br, zstd, gzip",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "Cookie": "c=1",
        "Upgrade": "h2c",
    }
    sent_back = {
        "x-ratelimit-remaining": "7",
        "request-id": "r1",
        "Set-Cookie": "a=b",
        "Content-Type": "application/json",
    }
    async with staged(Reply(200, sent_back, b"{}")) as stage:
        body = {"model": "m", "input": "a", "messages": [USER]}
        method = "GET" if path == "/models" else "POST"
        answer = await stage.http.request(method, path, json=None if method == "GET" else body, headers=headers)
        passed = stage.provider.requests[0].headers
        secret = stage.slot.api_key
    assert (passed["anthropic-beta"], passed["anthropic-version"], passed["x-unknown"]) == ("x", "2023-06-01", "1")
    assert passed.keys().isdisjoint({"x-api-key", "authorization", "x-hop", "te", "upgrade", "cookie"})
    assert passed["accept-encoding"] == "gzip, deflate"
    assert secret not in str(passed)
    assert (answer.headers["x-ratelimit-remaining"], answer.headers["request-id"]) == ("7", "r1")
    assert "set-cookie" not in answer.headers
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"{}", "2")
