import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.support.provider import Provider, Reply, scripted_provider, stream
from vfx.clients.base import Client, HttpSettings, ProviderRequest, ProviderResponse, ScriptedSettings, create_client
from vfx.clients.chaos import MARK, ChaosClient
from vfx.dialects.routes import DIALECTS
from vfx.errors import ProviderError

pytestmark = pytest.mark.anyio

CALL = ProviderRequest("chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}')
STREAM = ProviderRequest(CALL.path, CALL.body, is_stream=True)


class Waits:
    """Waits no longer than a moment, and remembers how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def client_of(provider: Provider, waits: Waits | None = None, **options: Any) -> AsyncGenerator[ChaosClient]:
    settings = HttpSettings(base_url=provider.base_url, api_key_var=None, **options)
    inner = create_client(settings.model_copy(update={"chaos": {}}))
    client = ChaosClient(inner, settings, sleep=(waits or Waits()).sleep)
    async with client.serving():
        yield client


async def call(client: Client, request: ProviderRequest = CALL) -> ProviderResponse:
    async with client.send(request) as response:
        return response


async def read(client: Client, request: ProviderRequest = STREAM) -> tuple[bytes, ProviderError | None]:
    """What came of a stream, and how it broke."""
    passed = b""
    async with client.send(request) as response:
        assert response.chunks is not None
        try:
            async for chunk in response.chunks:
                passed += chunk
        except ProviderError as error:
            return passed, error
    return passed, None


def named(response: ProviderResponse) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers}


async def test_the_settings_decide_whether_there_are_faults() -> None:
    assert isinstance(create_client(ScriptedSettings(chaos={"429": 0.1})), ChaosClient)
    assert not isinstance(create_client(ScriptedSettings()), ChaosClient)
    client = create_client(ScriptedSettings(chaos={"429": 0.1}))
    assert (client.default_model, client.endpoint, client.mistakes()) == ("scripted", "scripted", [])


async def test_a_status_is_sent_again_until_it_gets_through() -> None:
    waits = Waits()
    async with (
        scripted_provider() as provider,
        client_of(provider, waits, chaos={"429": 0.5}, max_retries=20) as client,
    ):
        responses = [await call(client) for _ in range(50)]
    assert {response.status for response in responses} == {200}
    assert len(provider.requests) == 50
    injected = client.injected_faults["429"]
    assert 20 < injected == client.waiting.retries == len(waits.seconds)
    assert sum(response.attempts for response in responses) == 50 + injected
    assert sum(response.waited for response in responses) == pytest.approx(sum(waits.seconds))
    assert sum(len(response.notes) for response in responses) == injected
    assert {note for response in responses for note in response.notes} == {f"429 {MARK}"}
    assert client.waiting.calls == 0


@pytest.mark.parametrize("route", DIALECTS)
async def test_what_is_left_after_the_retries_reaches_the_program_in_its_dialect(route: str) -> None:
    dialect = DIALECTS[route]
    async with (
        scripted_provider() as provider,
        client_of(provider, chaos={"429": 1.0}, max_retries=2) as client,
    ):
        response = await call(client, ProviderRequest(dialect.path, CALL.body))
    assert provider.requests == []
    assert (response.status, response.attempts, client.injected_faults) == (429, 3, {"429": 3})
    text = f"HTTP 429 {MARK} (after 3 attempts)"
    assert response.body == dialect.error_body(text, type="rate_limit_error", code="injected")
    assert str(response.error) == text
    assert response.error
    assert (response.error.status, response.error.fatal, response.error.is_final) == (429, None, False)


async def test_a_429_asks_to_wait_as_long_as_vfx_would() -> None:
    waits = Waits()
    options = {"chaos": {"429": 1.0}, "max_retries": 3, "max_retry_wait": 1.5}
    async with scripted_provider() as provider, client_of(provider, waits, **options) as client:
        headers = named(await call(client))
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1500")
    for seconds, asked in zip(waits.seconds, (0.5, 1.0, 1.5), strict=True):
        assert asked <= seconds <= 1.2 * asked + 0.4


@pytest.mark.parametrize(("kind", "attempts"), [("400", 1), ("401", 1), ("404", 1), ("500", 3), ("529", 3)])
async def test_a_status_is_tried_again_where_the_provider_s_would_be(kind: str, attempts: int) -> None:
    async with scripted_provider() as provider, client_of(provider, chaos={kind: 1.0}, max_retries=2) as client:
        response = await call(client)
    assert (response.status, response.attempts) == (int(kind), attempts)
    assert response.error
    assert response.error.fatal is None
    assert "retry-after" not in named(response)


@pytest.mark.parametrize("kind", ["refused", "cut"])
async def test_a_connection_that_never_holds_ends_the_call(kind: str) -> None:
    async with scripted_provider() as provider, client_of(provider, chaos={kind: 1.0}, max_retries=2) as client:
        with pytest.raises(ProviderError, match=rf"connection {kind}, {MARK} \(after 3 attempts\)") as caught:
            await call(client)
    assert caught.value.fatal is None
    assert caught.value.__notes__ == [f"{kind} {MARK}"] * 3
    assert (provider.requests, client.injected_faults) == ([], {kind: 3})


async def test_a_cut_stream_breaks_before_its_answer_is_whole() -> None:
    answer = stream("42")
    assert answer.chunks
    whole = b"".join(answer.chunks)
    async with scripted_provider(default=answer) as provider, client_of(provider, chaos={"cut": 1.0}) as client:
        outcomes = [await read(client) for _ in range(20)]
    assert len(provider.requests) == 20
    for passed, error in outcomes:
        assert whole.startswith(passed)
        assert 0 < len(passed) < len(whole)
        assert b'"finish_reason": "stop"' not in passed
        assert str(error) == f"provider stream incomplete: cut, {MARK}"
    assert len({len(passed) for passed, _ in outcomes}) > 1
    assert client.injected_faults == {"cut": 20}


@pytest.mark.parametrize("route", DIALECTS)
async def test_a_stream_that_comes_in_one_piece_is_cut_too(route: str) -> None:
    dialect = DIALECTS[route]
    client = create_client(ScriptedSettings(replies=("a",), chaos={"cut": 1.0}))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "stream": True})
    async with client.serving():
        for _ in range(10):
            passed, error = await read(client, ProviderRequest(dialect.path, body.encode(), is_stream=True))
            assembler = dialect.assemble(json.loads(body))
            assembler.feed(passed)
            assembler.finish()
            assert error is not None
            assert not assembler.is_complete


async def test_a_cut_closes_the_connection() -> None:
    slow = stream(*["one", "two", "three", "four"], chunk_delay=[0.0, 0.0, 0.0, 30.0])
    async with scripted_provider(default=slow) as provider, client_of(provider, chaos={"cut": 1.0}) as client:
        with anyio.fail_after(10):
            await read(client)
            await provider.requests[0].gone.wait()


async def test_a_stream_that_the_provider_refuses_has_nothing_to_cut() -> None:
    refusal = Reply(400, body=b'{"error": {"message": "no such thing"}}')
    async with scripted_provider(default=refusal) as provider, client_of(provider, chaos={"cut": 1.0}) as client:
        response = await call(client, STREAM)
    assert (response.status, response.body, response.notes) == (400, refusal.body, ())
    assert client.injected_faults == {}


async def test_slow_delays_the_answer_and_nothing_else() -> None:
    waits = Waits()
    options = {"chaos": {"slow": 1.0}, "chaos_delay": 7.0}
    async with scripted_provider() as provider, client_of(provider, waits, **options) as client:
        response = await call(client)
    assert (response.status, response.attempts, response.waited) == (200, 1, 0.0)
    assert waits.seconds == [7.0]
    assert response.notes == (f"slow {MARK}",)
    assert client.injected_faults == {"slow": 1}


async def test_a_fault_holds_back_no_other_call() -> None:
    """One call waits for long; the others are answered meanwhile."""
    settings = ScriptedSettings(chaos={"429": 0.5}, max_retry_wait=60, chaos_seed=1)
    client = ChaosClient(create_client(ScriptedSettings()), settings)
    answered = 0

    async def ask(number: int) -> None:
        nonlocal answered
        await call(client, ProviderRequest(CALL.path, CALL.body + b" " * number))
        answered += 1

    async with client.serving(), anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(ask, number)
        with anyio.fail_after(10):
            while answered + client.waiting.calls < 40:
                await anyio.sleep(0.01)
        assert answered > 10
        assert client.waiting.calls > 10
        assert client.waiting.reason == f"429 {MARK}"
        group.cancel_scope.cancel()
    assert client.waiting.calls == 0


async def test_a_429_counts_as_push_back_and_an_answer_as_one() -> None:
    seen: list[str] = []

    class Listener:
        def answered(self, sent: float, now: float) -> None:
            seen.append("answered")

        def pushed_back(self, sent: float, now: float) -> None:
            seen.append("pushed back")

    async with scripted_provider() as provider, client_of(provider, chaos={"429": 0.5}, max_retries=20) as client:
        client.observer.listener = Listener()
        for _ in range(20):
            await call(client)
    assert seen.count("answered") == 20
    assert seen.count("pushed back") == client.injected_faults["429"] > 0


async def test_a_large_body_is_told_apart_as_any_other() -> None:
    settings = ScriptedSettings(replies=("a",), chaos={"400": 0.5})
    first, again = (create_client(settings) for _ in range(2))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * (1 << 20)}]}).encode()
    for _ in range(10):
        request = ProviderRequest("chat/completions", body)
        assert (await call(first, request)).status == (await call(again, request)).status
    assert 0 < first.injected_faults["400"] < 10


async def test_what_the_provider_does_itself_is_not_marked() -> None:
    async with scripted_provider() as provider:
        closed = provider
    async with client_of(closed, chaos={"slow": 1.0}, max_retries=0) as client:
        with pytest.raises(ProviderError, match="refused the connection") as caught:
            await call(client)
    assert MARK not in str(caught.value)
    assert caught.value.__notes__ == [f"slow {MARK}"]
