"""Retries of a turn, and the same turn asked again, as programs see them."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import anthropic
import anyio
import httpx
import openai
import pytest

from tests.interception.stage import BODY, Stage, new_session, staged
from tests.support.provider import Reply, completion, stream
from vfx.interception import relay
from vfx.interception.session import Limits

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k"}
AGAIN = {"x-stainless-retry-count": "1"}
FIRST = {"x-stainless-retry-count": "0"}
FAILED = Reply(500, body=b'{"error":{"message":"no"}}')
OTHER = {"messages": [{"role": "user", "content": "Other"}]}


def texts(stage: Stage) -> list[str]:
    """What the model wrote, by the graph."""
    return [node.message.text for node in stage.session.trace.nodes if node.sampled]


async def ask(stage: Stage, headers: Mapping[str, str] | None = None, **fields: Any) -> str:
    response = await stage.post(headers=headers, **fields)
    return response.json()["choices"][0]["message"]["content"]


async def leave_when_asked(stage: Stage) -> None:
    """Ask, and go away as soon as the provider has the request."""
    async with anyio.create_task_group() as group:
        group.start_soon(partial(stage.post, headers=FIRST))
        await stage.provider.arrived()
        group.cancel_scope.cancel()


async def test_the_same_body_without_a_mark_is_a_new_turn() -> None:
    async with staged(completion("a1"), completion("a2")) as stage:
        assert [await ask(stage), await ask(stage)] == ["a1", "a2"]
        assert len(stage.provider.requests) == 2
    assert texts(stage) == ["a1", "a2"]


@pytest.mark.parametrize(("first", "second"), [(KEY, KEY), (FIRST, AGAIN), ({}, AGAIN)])
async def test_a_marked_retry_of_a_served_turn_gets_the_same_bytes(
    first: Mapping[str, str], second: Mapping[str, str]
) -> None:
    reply = completion("a1", headers={"x-request-id": "r1"})
    async with staged(reply, completion("a2")) as stage:
        one = await stage.post(headers=first)
        other = await stage.post(headers=second)
        assert len(stage.provider.requests) == 1
    assert one.content == other.content == reply.body
    assert dict(one.headers) == dict(other.headers)
    assert texts(stage) == ["a1"]
    assert len(stage.calls) == 1


async def test_a_stream_is_replayed_as_the_same_bytes() -> None:
    reply = stream("a", "1")
    async with staged(reply) as stage:
        one, other = [await stage.post(headers=KEY, stream=True) for _ in range(2)]
        assert len(stage.provider.requests) == 1
    assert one.content == other.content == b"".join(reply.chunks or ())
    assert other.headers["content-type"] == "text/event-stream"
    assert texts(stage) == ["a1"]


@pytest.mark.parametrize(("first", "second"), [(KEY, KEY), (FIRST, AGAIN)])
async def test_a_retry_joins_the_call_that_is_under_way(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    answers: list[str] = []
    async with staged(completion("a1", delay=0.2), completion("a2")) as stage:

        async def call(headers: Mapping[str, str]) -> None:
            answers.append(await ask(stage, headers))

        async with anyio.create_task_group() as group:
            group.start_soon(call, first)
            await stage.provider.arrived()
            group.start_soon(call, second)
        assert len(stage.provider.requests) == 1
    assert answers == ["a1", "a1"]
    assert texts(stage) == ["a1"]


async def test_a_retry_joins_a_stream_from_its_beginning() -> None:
    reply = stream("a", "b", "c", chunk_delay=0.05)
    bodies: list[bytes] = []
    async with staged(reply) as stage:

        async def call() -> None:
            bodies.append((await stage.post(headers=KEY, stream=True)).content)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await stage.provider.arrived()
            await anyio.sleep(0.12)
            group.start_soon(call)
        assert len(stage.provider.requests) == 1
    assert bodies == [b"".join(reply.chunks or ())] * 2


@pytest.mark.parametrize(("first", "second"), [(KEY, KEY), (FIRST, AGAIN)])
async def test_a_retry_joins_also_when_the_first_caller_has_gone(
    first: Mapping[str, str], second: Mapping[str, str]
) -> None:
    async with staged(completion("a1", delay=0.3), completion("a2")) as stage:
        with anyio.move_on_after(0.1):
            await stage.post(headers=first)
        assert await ask(stage, second) == "a1"
        assert len(stage.provider.requests) == 1
    assert texts(stage) == ["a1"]
    assert [call.error for call in stage.calls] == [None]


async def test_a_retry_comes_in_time_for_an_answer_that_nobody_waited_for() -> None:
    async with staged(completion("a1", delay=0.1)) as stage:
        await leave_when_asked(stage)
        await anyio.sleep(0.2)
        assert stage.session.trace.num_turns == 0
        assert await ask(stage, AGAIN) == "a1"
    assert texts(stage) == ["a1"]


@pytest.mark.parametrize("delay", [0.1, 5.0])
async def test_a_call_that_nobody_asks_for_again_ends_with_the_grace(
    monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    monkeypatch.setattr(relay, "GRACE_S", 0.2)
    async with staged(completion("a1", delay=delay)) as stage:
        await leave_when_asked(stage)
        await stage.recorded()
    assert stage.session.trace.num_turns == 0
    assert stage.call.error is not None
    assert stage.call.error.message == "program closed the connection"
    # What came and was paid for is on the record all the same.
    assert stage.call.usage.output_tokens == (3 if delay < 1 else None)


@pytest.mark.parametrize("fields", [{"stream": True}, {}])
async def test_a_stream_or_an_unmarked_call_ends_with_its_caller(fields: dict[str, Any]) -> None:
    async with staged(Reply(None, ending="hang")) as stage:
        with anyio.move_on_after(0.1):
            await stage.post(headers=FIRST if fields else {}, **fields)
        with anyio.fail_after(1):
            await stage.provider.requests[0].gone.wait()


async def test_the_end_of_the_rollout_ends_a_call_in_its_grace_at_once() -> None:
    session = new_session()
    async with staged(Reply(None, ending="hang")) as stage:
        async with stage.server.slot(session) as slot:
            with anyio.move_on_after(0.1):
                await stage.post(headers={**FIRST, "Authorization": f"Bearer {slot.api_key}"})
            request = stage.provider.requests[0]
            await anyio.sleep(0.1)
            assert request.left is None
        with anyio.fail_after(1):
            await request.gone.wait()
        retried = await stage.post(headers={**AGAIN, "Authorization": f"Bearer {slot.api_key}"})
    assert retried.status_code == 401
    assert session.trace.num_turns == 0


async def test_a_call_in_its_grace_takes_no_turn_from_others() -> None:
    session = new_session(limits=Limits(max_turns=1))
    async with staged(Reply(None, ending="hang"), completion("b"), session=session) as stage:
        with anyio.move_on_after(0.1):
            await stage.post(headers=FIRST)
        assert await ask(stage, FIRST, **OTHER) == "b"
        refused = await stage.post(headers=AGAIN)
    assert refused.json()["error"]["message"] == "rollout stopped: max_turns"
    assert session.trace.num_turns == 1


async def test_a_marked_retry_means_the_latest_turn_with_its_body() -> None:
    async with staged(completion("a1"), completion("a2"), completion("a3")) as stage:
        assert [await ask(stage), await ask(stage), await ask(stage, AGAIN)] == ["a1", "a2", "a2"]
        assert len(stage.provider.requests) == 2


@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses"])
async def test_a_key_with_another_body_is_refused_in_the_dialect_and_not_sent(path: str) -> None:
    bodies = [{**BODY, "input": "x", "max_tokens": 1}, {**BODY, "input": "x", "max_tokens": 2}]
    async with staged() as stage:
        one, other = [await stage.http.post(path, json=body, headers=KEY) for body in bodies]
        assert len(stage.provider.requests) == 1
    assert (one.status_code, other.status_code, other.headers["x-should-retry"]) == (200, 422, "false")
    assert "idempotency key" in other.json()["error"]["message"]


@pytest.mark.parametrize(("first", "second"), [(KEY, KEY), (FIRST, AGAIN)])
async def test_a_retry_of_a_failed_attempt_goes_upstream(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    async with staged(FAILED, completion("a1")) as stage:
        assert (await stage.post(headers=first)).status_code == 500
        assert await ask(stage, second) == "a1"
        assert len(stage.provider.requests) == 2
    assert texts(stage) == ["a1"]
    assert stage.session.error is None


async def test_a_joined_failure_is_told_to_both() -> None:
    statuses: list[int] = []
    async with staged(Reply(500, delay=0.1, body=FAILED.body)) as stage:

        async def call() -> None:
            statuses.append((await stage.post(headers=KEY)).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await stage.provider.arrived()
            group.start_soon(call)
    assert statuses == [500, 500]
    assert len(stage.calls) == 1


async def test_a_joined_stream_that_breaks_off_is_broken_for_both() -> None:
    failures: list[Exception] = []
    async with staged(stream("a", finish_reason=None, is_done=False, chunk_delay=0.05)) as stage:

        async def call() -> None:
            try:
                await stage.post(headers=KEY, stream=True)
            except httpx.HTTPError as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await stage.provider.arrived()
            group.start_soon(call)
    assert [type(failure) for failure in failures] == [httpx.RemoteProtocolError] * 2
    assert texts(stage) == []


async def test_limits_count_a_retried_turn_once() -> None:
    session = new_session(limits=Limits(max_turns=2, max_total_tokens=16))
    async with staged(session=session) as stage:
        for _ in range(4):
            assert (await stage.post(headers=KEY)).status_code == 200
        assert (await stage.post()).status_code == 200
        assert (await stage.post()).status_code == 400
        # The turn was made before the limit was reached.
        assert (await stage.post(headers=KEY)).status_code == 200
    assert session.trace.num_turns == 2
    assert session.trace.usage.input_tokens == 10


async def test_a_key_is_not_sent_on() -> None:
    async with staged() as stage:
        await stage.post(headers=KEY)
        assert "idempotency-key" not in stage.provider.requests[0].headers


async def test_keys_of_other_rollouts_are_other_keys() -> None:
    other = new_session()
    async with staged(completion("a1"), completion("a2")) as stage, stage.server.slot(other) as slot:
        assert await ask(stage, KEY) == "a1"
        assert await ask(stage, {**KEY, "Authorization": f"Bearer {slot.api_key}"}) == "a2"
    assert other.trace.num_turns == 1


async def test_sdk_that_is_refused_twice_makes_one_turn() -> None:
    async with (
        staged(FAILED, FAILED, completion("a1")) as stage,
        openai.AsyncOpenAI(base_url=stage.slot.base_url, api_key=stage.slot.api_key, max_retries=2) as sdk,
    ):
        answer = await sdk.chat.completions.create(model="x", messages=[{"role": "user", "content": "2+2"}])
        counts = [request.headers["x-stainless-retry-count"] for request in stage.provider.requests]
    assert answer.choices[0].message.content == "a1"
    assert counts == ["0", "1", "2"]
    assert texts(stage) == ["a1"]
    assert len(stage.session.trace.nodes) == 2


async def test_sdk_that_times_out_gets_the_answer_of_its_first_attempt() -> None:
    async with (
        staged(completion("a1", delay=0.6), completion("a2")) as stage,
        openai.AsyncOpenAI(base_url=stage.slot.base_url, api_key=stage.slot.api_key, timeout=0.4) as sdk,
    ):
        answer = await sdk.chat.completions.create(model="x", messages=[{"role": "user", "content": "2+2"}])
        assert len(stage.provider.requests) == 1
    assert answer.choices[0].message.content == "a1"
    assert texts(stage) == ["a1"]


async def test_sdk_whose_answer_was_lost_on_the_way_gets_it_again() -> None:
    """The connection breaks right after the turn: the program has not got it, the trace has."""
    async with staged(completion("a1"), completion("a2")) as stage:
        connection = await anyio.connect_tcp("127.0.0.1", httpx.URL(stage.slot.base_url).port or 0)
        async with connection:
            raw = json.dumps(BODY).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {stage.slot.api_key}"
                f"\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
            )
            await connection.send(head.encode() + raw)
            await stage.recorded()
        assert await ask(stage, AGAIN) == "a1"
        assert len(stage.provider.requests) == 1
    assert texts(stage) == ["a1"]


async def test_the_other_sdk_makes_one_turn_too() -> None:
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "a1"}],
    }
    usage = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 3}}
    reply = Reply(200, {"Content-Type": "application/json"}, json.dumps({**answer, **usage}).encode())
    async with (
        staged(FAILED, FAILED, reply) as stage,
        anthropic.AsyncAnthropic(
            base_url=stage.slot.base_url.removesuffix("/v1"), api_key=stage.slot.api_key, max_retries=2
        ) as sdk,
    ):
        message = await sdk.messages.create(model="x", max_tokens=9, messages=[{"role": "user", "content": "2+2"}])
    assert message.content[0].type == "text"
    assert texts(stage) == ["a1"]
    assert len(stage.session.trace.nodes) == 2
