import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from pydantic import Field

from tests.interception.stage import BODY, new_session
from tests.support.provider import Provider, scripted_provider
from vfx.authoring.state import State
from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.base import ElasticSettings, Interception, Slot, create_interception
from vfx.interception.session import Session

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


class Counts(State):
    count: int = 0
    names: list[str] = Field(default_factory=list[str])
    share: float = 0.5


class Plain(State):
    note: Any = None


@asynccontextmanager
async def serving(provider: Provider | None = None, **settings: Any) -> AsyncGenerator[Interception]:
    """An interception that is up; its calls go nowhere unless there is a provider."""
    base_url = "http://127.0.0.1:9/v1" if provider is None else provider.base_url
    client = HttpClient(HttpSettings(base_url=base_url, api_key_var=None, max_retries=0))
    interception = create_interception(ElasticSettings(**settings), client)
    async with client.serving(), interception.serving():
        yield interception


@asynccontextmanager
async def rollout(
    interception: Interception, state: State | None = None, data: dict[str, Any] | None = None
) -> AsyncGenerator[tuple[Session, Slot]]:
    session = new_session(state=state, data=data)
    async with interception.acquire(session) as slot:
        yield session, slot


async def ask(
    slot: Slot,
    method: str = "GET",
    content: Any = None,
    path: str = "/state",
    **headers: str,
) -> httpx.Response:
    """A request with the rollout's state secret, unless other headers are given."""
    lines = {"Authorization": f"Bearer {slot.state_key}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if method == "PUT":
        lines = JSON | lines
    body = content if isinstance(content, str | bytes | None) else json.dumps(content)
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.request(method, slot.state_url + path, headers=lines, content=body)


def reason(response: httpx.Response) -> str:
    return response.json()["error"]["message"]


async def test_what_was_put_is_what_hooks_and_readers_get() -> None:
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        assert (await ask(slot)).json() == {"count": 0, "names": [], "share": 0.5}
        put = await ask(slot, "PUT", {"count": 3, "names": ["a"]})
        assert (put.status_code, put.content) == (204, b"")
        assert session.trace.state == Counts(count=3, names=["a"])
        read = await ask(slot)
    assert read.json() == {"count": 3, "names": ["a"], "share": 0.5}
    assert read.headers["etag"] == put.headers["etag"]
    assert session.trace.to_record()["state"] == read.json()


async def test_the_task_is_told() -> None:
    data = {"prompt": "Hi", "tags": ("a",), "odd": "\ud800"}
    async with serving() as interception, rollout(interception, data=data) as (_, slot):
        assert (await ask(slot, path="/task")).json() == {"prompt": "Hi", "tags": ["a"], "odd": "\ud800"}
        assert (await ask(slot, "PUT", {}, path="/task")).headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"count": "many"}, "count: expected a whole number, got 'many'"),
        ({"count": 1.5}, "count: expected a whole number, got 1.5"),
        ({"names": [1]}, "names.0: expected text, got 1"),
        ({"names": "a"}, "names: expected a list, got 'a'"),
        ({"number": 1}, "number: there is no such field; there are: count, names, share"),
        ([], "expected an object"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ('{"share": NaN}', "NaN is no number"),
        ('{"share": 1e999}', "share: expected a finite number"),
        (b'{"names": ["\xff"]}', "can't decode byte"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
async def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(body: Any, expected: str) -> None:
    async with serving() as interception, rollout(interception, Counts(count=7)) as (session, slot):
        before = (await ask(slot)).headers["etag"]
        put = await ask(slot, "PUT", body)
        assert put.status_code == 400
        assert expected in reason(put)
        assert session.trace.state == Counts(count=7)
        assert (await ask(slot)).headers["etag"] == before


@pytest.mark.parametrize(
    "text", ['{"note": NaN}', '{"note": -Infinity}', '{"note": 1e999}', f'{{"note": {"9" * 5000}}}']
)
async def test_numbers_that_records_cannot_hold_are_refused_in_any_field(text: str) -> None:
    async with serving() as interception, rollout(interception, Plain(note=1)) as (session, slot):
        assert (await ask(slot, "PUT", text)).status_code == 400
        assert session.trace.state == Plain(note=1)


async def test_lone_surrogates_pass_through() -> None:
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        assert (await ask(slot, "PUT", '{"names": ["\\ud800"]}')).status_code == 204
        assert session.trace.state.names == ["\ud800"]
        assert (await ask(slot)).json()["names"] == ["\ud800"]


async def test_a_write_over_another_one_is_refused_when_it_says_what_it_replaces() -> None:
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        tag = (await ask(slot)).headers["etag"]
        assert (await ask(slot, "PUT", {"count": 1}, If_Match=tag)).status_code == 204
        late = await ask(slot, "PUT", {"count": 2}, If_Match=tag)
        assert (late.status_code, session.trace.state.count) == (412, 1)
        same = (await ask(slot)).headers["etag"]
        await ask(slot, "PUT", {"count": 1})
        assert (await ask(slot, "PUT", {"count": 2}, If_Match=same)).status_code == 412
        assert (await ask(slot, "PUT", {"count": 3}, If_Match="*")).status_code == 204
        assert (await ask(slot, "PUT", {"count": 4})).status_code == 204


async def test_what_a_hook_changed_in_place_is_another_version() -> None:
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        tag = (await ask(slot)).headers["etag"]
        session.trace.state.names.append("by a stop")
        assert (await ask(slot, "PUT", {"count": 1}, If_Match=tag)).status_code == 412
        assert session.trace.state.names == ["by a stop"]


async def test_a_hook_that_spoils_the_state_is_named_and_the_state_can_be_replaced() -> None:
    async with serving() as interception, rollout(interception, Plain()) as (session, slot):
        session.trace.state.note = [float("nan")]
        read = await ask(slot)
        assert (read.status_code, "the state has no JSON form" in reason(read)) == (500, True)
        assert (await ask(slot, "PUT", {"note": 1})).status_code == 204


async def test_a_task_without_a_state_says_so() -> None:
    async with serving() as interception, rollout(interception) as (_, slot):
        for response in (await ask(slot), await ask(slot, "PUT", {})):
            assert (response.status_code, "T names no state_type" in reason(response)) == (404, True)


async def test_a_state_has_a_bound_and_no_call_is_recorded_for_it() -> None:
    async with serving(max_body_bytes=1) as interception, rollout(interception, Counts()) as (session, slot):
        assert (await ask(slot, "PUT", {"names": ["x" * 1000]})).status_code == 204
        put = await ask(slot, "PUT", {"names": ["x" * (4 << 20)]})
    assert (put.status_code, reason(put)) == (413, f"a state has at most {4 << 20} bytes")
    assert session.trace.calls == []
    assert session.error is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": ""}, 415),
    ],
)
@pytest.mark.parametrize("has_key", [True, False])
async def test_what_a_browser_could_send_is_refused_with_and_without_the_secret(
    headers: dict[str, str], status: int, has_key: bool
) -> None:
    key = {} if has_key else {"Authorization": "Bearer wrong"}
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        assert (await ask(slot, "PUT", {"count": 1}, **headers, **key)).status_code == status
        assert session.trace.state == Counts()


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_told_the_right_ones(method: str) -> None:
    async with serving() as interception, rollout(interception, Counts()) as (_, slot):
        response = await ask(slot, method, **JSON_LINES)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, PUT")


JSON_LINES = {"Content_Type": "application/json"}


async def test_only_the_rollouts_own_state_secret_opens_its_state() -> None:
    async with (
        scripted_provider() as provider,
        serving(provider) as interception,
        rollout(interception, Counts()) as (session, slot),
        rollout(interception, Counts(count=9)) as (other, _),
    ):
        keys = [
            "",
            "Bearer wrong",
            f"Bearer {slot.api_key}",
            f"Bearer {other.api_key}",
            f"Basic {slot.state_key}",
            f"Bearer {slot.state_key}x",
            f"Bearer {'w' * 5000}",
        ]
        refused = [
            await ask(slot, method, content, path, Authorization=key)
            for key in keys
            for method, content, path in (
                ("GET", None, "/state"),
                ("PUT", {"count": 5}, "/state"),
                ("GET", None, "/task"),
            )
        ]
        assert {response.status_code for response in refused} == {401}
        assert len({response.content for response in refused}) == 1
        assert len({tuple(response.headers.items()) for response in refused}) == 1
        assert (session.trace.state, other.trace.state) == (Counts(), Counts(count=9))
        turn = await ask(slot, "POST", BODY, "/v1/chat/completions", **JSON_LINES)
        assert (turn.status_code, provider.requests, session.trace.calls) == (401, [], [])
        assert (await ask(slot, x_api_key=slot.state_key, Authorization="")).status_code == 200


async def test_secrets_are_long_and_three_different_values() -> None:
    async with serving() as interception, rollout(interception) as (_, slot), rollout(interception) as (_, other):
        secrets = {slot.api_key, slot.state_key, other.api_key, other.state_key}
    assert len(secrets) == 4
    assert min(map(len, secrets)) * 6 >= 128


async def test_a_write_after_the_end_is_told_so_and_changes_nothing() -> None:
    async with serving() as interception:
        async with rollout(interception, Counts(count=1)) as (session, slot):
            pass
        ended = [await ask(slot, "PUT", {"count": 2}), await ask(slot), await ask(slot, path="/task")]
        assert {(response.status_code, reason(response)) for response in ended} == {(409, "the rollout has ended")}
    assert session.trace.state == Counts(count=1)


async def test_a_session_that_is_closed_takes_no_write_while_its_slot_is_there() -> None:
    async with serving() as interception, rollout(interception, Counts()) as (session, slot):
        session.close()
        assert (await ask(slot, "PUT", {"count": 2})).status_code == 409
    assert session.trace.state == Counts()


async def test_a_write_whose_body_comes_after_the_end_changes_nothing() -> None:
    session = new_session(state=Counts())
    async with serving() as interception:
        began, ended = anyio.Event(), anyio.Event()

        async def body() -> AsyncGenerator[bytes]:
            yield b'{"count": '
            began.set()
            await ended.wait()
            yield b"5}"

        statuses: list[int] = []

        async def write(slot: Slot) -> None:
            key = {"Authorization": f"Bearer {slot.state_key}"}
            async with httpx.AsyncClient(trust_env=False) as http:
                put = await http.put(f"{slot.state_url}/state", headers=JSON | key, content=body())
                statuses.append(put.status_code)

        async with anyio.create_task_group() as group:
            async with interception.acquire(session) as slot:
                group.start_soon(write, slot)
                with anyio.fail_after(5):
                    await began.wait()
                    await anyio.sleep(0.05)
            ended.set()
    assert statuses == [409]
    assert session.trace.state == Counts()


async def test_the_states_of_many_rollouts_never_mix() -> None:
    sessions: dict[int, Session] = {}

    async def add(slot: Slot, number: int, http: httpx.AsyncClient) -> None:
        key = {"Authorization": f"Bearer {slot.state_key}"}
        for _ in range(5):
            read = await http.get(f"{slot.state_url}/state", headers=key)
            state = read.json()
            assert state["names"] == [str(number)] * state["count"]
            state = {"count": state["count"] + 1, "names": [*state["names"], str(number)]}
            await http.put(f"{slot.state_url}/state", headers=key, json=state)

    async with serving(multiplex=8) as interception, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        async with anyio.create_task_group() as group:
            for number in range(32):
                session, slot = await stack.enter_async_context(rollout(interception, Counts()))
                sessions[number] = session
                group.start_soon(add, slot, number, http)
    assert [session.trace.state for session in sessions.values()] == [
        Counts(count=5, names=[str(number)] * 5) for number in range(32)
    ]
