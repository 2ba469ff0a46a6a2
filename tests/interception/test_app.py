import json
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from tests.interception.stage import BODY, Stage, new_session, staged
from tests.support.provider import completion, stream

pytestmark = pytest.mark.anyio

RAW = json.dumps(BODY).encode()
JSON = {"Content-Type": "application/json"}


async def ask(
    stage: Stage, headers: dict[str, str], method: str = "POST", path: str = "/v1/chat/completions"
) -> httpx.Response:
    """A request that carries no more than the given headers."""
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.request(
            method, stage.server.url + path, headers=headers, content=RAW if method == "POST" else None
        )


async def test_health_needs_no_secret_and_tells_nothing() -> None:
    async with staged() as stage:
        response = await ask(stage, {}, "GET", "/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_missing_wrong_and_ended_secrets_get_one_and_the_same_answer(path: str) -> None:
    ended = new_session()
    async with staged() as stage:
        async with stage.server.slot(ended):
            pass
        keys = [
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Bearer {ended.api_key}"},
            {"Authorization": f"Basic {stage.slot.api_key}"},
            {"x-api-key": "w" * 5000},
            {"x-api-key": ""},
        ]
        method = "POST" if "chat" in path else "GET"
        responses = [await ask(stage, JSON | key, method, path) for key in keys]
        assert {response.status_code for response in responses} == {401}
        assert len({response.content for response in responses}) == 1
        assert len({tuple(response.headers.items()) for response in responses}) == 1
        assert stage.provider.requests == []
    assert stage.calls == ended.trace.calls == []


async def test_secret_is_taken_from_either_header() -> None:
    async with staged() as stage:
        for name, value in (("x-api-key", stage.slot.api_key), ("authorization", f"bearer {stage.slot.api_key}")):
            assert (await ask(stage, JSON | {name: value})).status_code == 200


async def test_a_rollouts_secret_writes_to_its_own_trace_only() -> None:
    other = new_session()
    async with staged() as stage, stage.server.slot(other) as slot:
        await ask(stage, JSON | {"x-api-key": slot.api_key})
        assert other.trace.num_turns == 1
        assert stage.calls == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": ""}, 415),
    ],
)
@pytest.mark.parametrize("has_key", [True, False])
async def test_what_a_browser_could_send_is_refused_with_and_without_the_secret(
    headers: dict[str, str], status: int, has_key: bool
) -> None:
    async with staged() as stage:
        key = {"x-api-key": stage.slot.api_key} if has_key else {}
        response = await ask(stage, JSON | key | headers)
        assert response.status_code == status
        assert stage.provider.requests == []
    assert "message" in response.json()["error"]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
async def test_loopback_names_are_served(name: str) -> None:
    async with staged() as stage:
        port = urlsplit(stage.server.url).port
        key = {"x-api-key": stage.slot.api_key}
        for headers in ({"Host": f"{name}:{port}"}, {"Host": name}, {"Origin": f"http://{name}:3000"}):
            assert (await ask(stage, JSON | key | headers)).status_code == 200


async def test_a_request_without_a_host_is_refused() -> None:
    async with (
        staged() as stage,
        await anyio.connect_tcp("127.0.0.1", int(stage.server.url.rpartition(":")[2])) as peer,
    ):
        await peer.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await peer.receive()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models", "GET"),
        ("POST", "/health", "GET"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(method: str, path: str, allowed: str) -> None:
    async with staged() as stage:
        response = await ask(stage, JSON, method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat/completions/", "/v1/embeddings", "/states", "/health/x"])
async def test_unknown_paths_are_not_found(path: str) -> None:
    async with staged() as stage:
        response = await ask(stage, {}, "GET", path)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


async def test_no_header_names_the_software() -> None:
    async with staged() as stage:
        response = await ask(stage, {}, "GET", "/health")
    assert set(response.headers) == {"content-type", "content-length"}


async def test_the_end_of_a_slot_cancels_its_calls_upstream() -> None:
    session = new_session()
    async with staged(completion(delay=30)) as stage:
        answers: list[httpx.Response] = []

        async def call() -> None:
            answers.append(await ask(stage, JSON | {"x-api-key": session.api_key}))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                async with stage.server.slot(session):
                    group.start_soon(call)
                    await stage.provider.arrived()
                # Recorded by the time the slot has ended, so that it is on the trace which is scored.
                assert [record.error and record.error.message for record in session.trace.calls] == [
                    "program closed the connection"
                ]
                await stage.provider.requests[0].gone.wait()
    assert answers[0].status_code == 401
    assert session.error is None


async def test_the_end_of_a_slot_breaks_its_streams_off() -> None:
    session = new_session()
    async with staged(stream("a", ending="hang", finish_reason=None, usage=None, is_done=False)) as stage:
        with anyio.fail_after(5):
            async with httpx.AsyncClient(trust_env=False) as http, AsyncExitStack() as rollout:
                await rollout.enter_async_context(stage.server.slot(session))
                headers = JSON | {"x-api-key": session.api_key}
                url = f"{stage.server.url}/v1/chat/completions"
                body = json.dumps(BODY | {"stream": True})
                async with http.stream("POST", url, content=body, headers=headers) as response:
                    pieces = response.aiter_raw()
                    await anext(pieces)
                    await rollout.aclose()
                    with pytest.raises(httpx.RemoteProtocolError):
                        async for _ in pieces:
                            pass
            await stage.provider.requests[0].gone.wait()
    assert session.trace.calls[0].partial == "a"
