import json
from typing import Any

import anyio
import openai
import pytest

from tests.interception.stage import Stage, new_session, staged
from tests.support.provider import Reply, completion, stream
from vfx.errors import TaskError
from vfx.interception.session import Limits
from vfx.messages import Sampling, Usage

pytestmark = pytest.mark.anyio

CUT: dict[str, Any] = {"finish_reason": None, "usage": None, "is_done": False}


def error_reply(status: int, message: str = "no", headers: dict[str, str] | None = None, **fields: str) -> Reply:
    body = json.dumps({"error": {"message": message, **fields}}).encode()
    return Reply(status, headers or {}, body)


# A whole answer


async def test_answer_reaches_the_program_unchanged_and_becomes_a_turn() -> None:
    reply = completion("four", headers={"x-request-id": "r1", "X-Odd": "caf\u00e9"})
    async with staged(reply) as stage:
        response = await stage.post()
    assert response.content == reply.body
    assert response.headers["x-request-id"] == "r1"
    assert [node.message.text for node in stage.session.trace.nodes] == ["Hi", "four"]
    assert (stage.call.usage, stage.call.finish_reasons) == (Usage(5, 3), ("stop",))
    assert stage.call.model == "scripted-model"
    assert stage.call.first_byte is not None
    assert stage.session.error is None


async def test_turn_is_on_the_trace_before_the_program_has_the_answer() -> None:
    async with staged() as stage:
        await stage.post()
        assert stage.session.trace.num_turns == 1


async def test_request_bytes_pass_unchanged_when_nothing_is_imposed() -> None:
    raw = b'{ "messages":[{"role" : "user","content":"a\\ud835b \\u00e9 \xc3\xa9"}],\n "x":1.0,"model":"m" }'
    async with staged() as stage:
        assert (await stage.post(raw)).status_code == 200
        assert stage.provider.requests[0].body == raw


async def test_model_and_sampling_are_imposed_and_all_else_stays_in_order() -> None:
    sampling = Sampling(temperature=0.5, max_tokens=7, extra={"top_k": 3})
    body = {
        "stop": ["x"],
        "model": "theirs",
        "messages": [{"content": "lone \ud835 \u4f60", "role": "user"}],
        "temperature": 1,
        "parallel_tool_calls": False,
        "unknown": {"b": 1, "a": None},
    }
    async with staged(session=new_session(sampling=sampling)) as stage:
        await stage.post(json.dumps(body).encode())
        sent = stage.provider.requests[0]
    expected = body | {"model": "m", "temperature": 0.5, "top_k": 3, "max_tokens": 7}
    assert list(sent.json().items()) == list(expected.items())
    assert stage.call.sampling == {"stop": ["x"], "temperature": 0.5, "top_k": 3, "max_tokens": 7}


async def test_credentials_and_transport_headers_stay_here_and_features_pass() -> None:
    headers = {
        "x-api-key": "mine",
        "api-key": "mine",
        "Cookie": "c=1",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "Accept-Encoding": "br",
        "Idempotency-Key": "k1",
        "OpenAI-Beta": "assistants=v2",
        "x-stainless-retry-count": "0",
    }
    async with staged() as stage:
        await stage.post(headers=headers)
        passed = stage.provider.requests[0].headers
        secret = stage.slot.api_key
    assert passed.keys().isdisjoint(
        {"authorization", "x-api-key", "api-key", "cookie", "x-hop", "te", "origin", "idempotency-key"}
    )
    assert passed["openai-beta"] == "assistants=v2"
    assert passed["x-stainless-retry-count"] == "0"
    assert passed["accept-encoding"] != "br"
    assert passed["host"].startswith("127.0.0.1")
    assert secret not in str(passed)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "line 1 column"),
        (b"", "line 1 column"),
        (b"\xff{}", "utf-8"),
        (b"[]", "expected a JSON object, got list"),
        (b"{}", "messages: expected a list of messages, got NoneType"),
        (b'{"messages":"hi"}', "messages: expected a list of messages, got str"),
        (b'{"messages":["hi"]}', "messages[0]: expected an object, got str"),
        (b'{"messages":[{"content":"hi"}]}', "messages[0].role: expected text, got None"),
        (b'{"messages":[{"role":"user","content":5}]}', "messages[0].content: expected text or a list of parts"),
        (b'{"messages":' + b"[" * 100_000, "nested too deeply"),
    ],
)
async def test_request_that_is_no_completion_is_refused_and_not_sent(raw: bytes, words: str) -> None:
    async with staged() as stage:
        response = await stage.post(raw)
        assert stage.provider.requests == []
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert stage.calls == []


@pytest.mark.parametrize("body", [b"not json", b"[]", b"", b'{"choices":[]}', b'{"choices":[{"message":null}]}'])
async def test_answer_that_is_no_completion_passes_and_is_a_failed_call(body: bytes) -> None:
    async with staged(Reply(200, body=body)) as stage:
        response = await stage.post()
    assert (response.status_code, response.content) == (200, body)
    assert stage.call.error is not None
    assert stage.call.error.message.startswith("answer is not a chat completion: ")
    assert stage.session.trace.nodes == []


async def test_large_bodies_pass() -> None:
    text = "x\u4f60" * 200_000
    async with staged(completion(text)) as stage:
        response = await stage.post(messages=[{"role": "user", "content": text}], temperature=0)
        assert stage.provider.requests[0].json()["messages"][0]["content"] == text
    assert response.json()["choices"][0]["message"]["content"] == text
    assert stage.session.trace.last_reply == text


# Failures of the provider


async def test_error_keeps_status_body_and_retry_after() -> None:
    reply = error_reply(429, "slow down", {"Retry-After": "2", "Content-Type": "application/json; charset=utf-8"})
    async with staged(reply) as stage:
        response = await stage.post()
    assert (response.status_code, response.content) == (429, reply.body)
    assert response.headers["retry-after"] == "2"
    assert "x-should-retry" not in response.headers
    assert stage.call.error is not None
    assert stage.call.error.status == 429
    assert str(stage.session.error).startswith("HTTP 429")


async def test_error_that_every_call_would_meet_is_not_to_be_retried() -> None:
    async with staged(error_reply(401, headers={"X-Should-Retry": "true"})) as stage:
        response = await stage.post()
    assert response.headers.get_list("x-should-retry") == ["false"]


async def test_overlong_prompt_ends_the_rollout_as_truncated() -> None:
    async with staged(error_reply(400, code="context_length_exceeded")) as stage:
        assert (await stage.post()).status_code == 400
        again = await stage.post()
    assert again.json()["error"]["message"] == "rollout stopped: context_length"
    assert stage.session.trace.stop_condition == "context_length"
    assert stage.session.error is None


async def test_silence_is_told_as_no_answer_and_not_to_be_retried() -> None:
    async with staged(Reply(None, ending="hang"), idle_timeout=0.2) as stage:
        response = await stage.post()
    assert (response.status_code, response.headers["x-should-retry"]) == (502, "false")
    assert "idle timeout" in response.json()["error"]["message"]
    assert stage.call.error is not None
    assert "idle timeout" in stage.call.error.message


async def test_a_later_answer_clears_the_failure() -> None:
    async with staged(error_reply(500)) as stage:
        assert (await stage.post()).status_code == 500
        await stage.post()
    assert stage.session.error is None
    assert [bool(call.nodes) for call in stage.calls] == [False, True]


# Limits and stops


async def test_turn_limit_refuses_in_a_form_that_is_not_retried() -> None:
    async with staged(session=new_session(limits=Limits(max_turns=1))) as stage:
        await stage.post()
        response = await stage.post()
        assert len(stage.provider.requests) == 1
    assert (response.status_code, response.headers["x-should-retry"]) == (400, "false")
    assert response.json()["error"]["message"] == "rollout stopped: max_turns"
    assert stage.session.trace.stop_condition == "max_turns"


async def test_a_limit_lets_exactly_so_many_concurrent_calls_through() -> None:
    session = new_session(limits=Limits(max_turns=5))
    async with staged(default=completion(delay=0.05), session=session) as stage:
        statuses: list[int] = []

        async def call() -> None:
            statuses.append((await stage.post()).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(call)
        assert len(stage.provider.requests) == 5
    assert sorted(statuses) == [200] * 5 + [400] * 7
    assert session.trace.num_turns == 5


async def test_stop_condition_of_the_task_refuses_the_turn() -> None:
    async def find_stop() -> str | None:
        return "solved" if session.trace.num_turns else None

    session = new_session(find_stop=find_stop)
    async with staged(session=session) as stage:
        assert (await stage.post()).status_code == 200
        refused = [await stage.post(), await stage.post()]
        assert len(stage.provider.requests) == 1
    assert [response.json()["error"]["message"] for response in refused] == ["rollout stopped: solved"] * 2
    assert session.trace.stop_condition == "solved"


async def test_stop_condition_that_fails_fails_the_rollout_for_good() -> None:
    async def find_stop() -> str | None:
        raise TaskError("stop 'solved': KeyError: 'x'")

    session = new_session(find_stop=find_stop)
    async with staged(session=session) as stage:
        refused = [await stage.post(), await stage.post()]
        assert stage.provider.requests == []
    assert {response.status_code for response in refused} == {400}
    assert {response.json()["error"]["message"] for response in refused} == {
        "rollout failed: stop 'solved': KeyError: 'x'"
    }
    assert isinstance(session.error, TaskError)
    assert session.trace.stop_condition is None


async def test_bug_in_what_a_session_was_given_is_a_failed_call_and_a_server_error() -> None:
    async def find_stop() -> str | None:
        raise ZeroDivisionError("oops")

    session = new_session(find_stop=find_stop)
    async with staged(session=session) as stage:
        response = await stage.post()
    assert (response.status_code, response.headers["x-should-retry"]) == (500, "false")
    assert str(session.error) == "interception: ZeroDivisionError: oops"


# The real SDK


def new_sdk(stage: Stage) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=stage.slot.base_url, api_key=stage.slot.api_key)


async def test_sdk_reads_an_answer_and_a_stream() -> None:
    async with staged(completion("four"), stream("fo", "ur")) as stage, new_sdk(stage) as sdk:
        answer = await sdk.chat.completions.create(model="x", messages=[{"role": "user", "content": "2+2"}])
        pieces = await sdk.chat.completions.create(
            model="x", messages=[{"role": "user", "content": "2+2"}], stream=True
        )
        text = "".join([piece.choices[0].delta.content or "" async for piece in pieces if piece.choices])
    assert answer.choices[0].message.content == text == "four"
    assert stage.session.trace.num_turns == 2


async def test_sdk_does_not_repeat_a_refused_turn() -> None:
    async with staged(session=new_session(limits=Limits(max_turns=0))) as stage:
        async with new_sdk(stage) as sdk:
            with pytest.raises(openai.BadRequestError, match="rollout stopped: max_turns"):
                await sdk.chat.completions.create(model="x", messages=[{"role": "user", "content": "2+2"}])
        assert stage.provider.requests == []


async def test_sdk_fails_on_a_broken_stream() -> None:
    async with staged(stream("a", **CUT)) as stage, new_sdk(stage) as sdk:
        pieces = await sdk.chat.completions.create(
            model="x", messages=[{"role": "user", "content": "2+2"}], stream=True
        )
        with pytest.raises(openai.APIConnectionError):
            [piece async for piece in pieces]


async def test_sdk_lists_models() -> None:
    listing = {"object": "list", "data": [{"id": "m1", "object": "model", "created": 1, "owned_by": "o"}]}
    async with staged(Reply(200, body=json.dumps(listing).encode())) as stage, new_sdk(stage) as sdk:
        assert [model.id async for model in sdk.models.list()] == ["m1"]


# Other routes


async def test_listing_of_models_passes_and_is_no_turn() -> None:
    reply = Reply(200, {"Content-Type": "application/json"}, b'{"object":"list","data":[]}')
    async with staged(reply, session=new_session(limits=Limits(max_turns=0))) as stage:
        response = await stage.http.get("/models")
        request = stage.provider.requests[0]
    assert (response.status_code, response.content) == (200, reply.body)
    assert (request.method, request.path, request.body) == ("GET", "/v1/models", b"")
    assert stage.calls == []


async def test_listing_without_an_answer_is_a_bad_gateway() -> None:
    async with staged(Reply(None, ending="hang"), idle_timeout=0.2) as stage:
        response = await stage.http.get("/models")
    assert (response.status_code, response.headers["x-should-retry"]) == (502, "false")
