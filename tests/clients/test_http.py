import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from tests.support.provider import Provider, Reply, Request, completion, scripted_provider
from vfx.clients.base import Client, HttpSettings, ProviderRequest, ProviderResponse, create_client
from vfx.clients.http import HttpClient
from vfx.errors import ProviderError

pytestmark = pytest.mark.anyio

CALL = ProviderRequest("chat/completions", b'{"model": "big-1", "messages": []}')
NOW = 1_700_000_000.0


class FastTime:
    """A clock that only moves when someone waits, for one call at a time."""

    def __init__(self) -> None:
        self.now = NOW
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@asynccontextmanager
async def client_of(provider: Provider | str, **options: Any) -> AsyncGenerator[HttpClient]:
    names = ("clock", "sleep", "jitter", "key")
    injected = {name: options.pop(name) for name in names if name in options}
    base_url = provider if isinstance(provider, str) else provider.base_url
    client = HttpClient(HttpSettings(base_url=base_url, **options), **injected)
    async with client.serving():
        yield client


@asynccontextmanager
async def fast_client(provider: Provider | str, jitter: float = 0.0, **options: Any) -> AsyncGenerator[HttpClient]:
    fast = FastTime()
    async with client_of(provider, clock=fast.clock, sleep=fast.sleep, jitter=lambda: jitter, **options) as client:
        yield client


async def call(client: Client, request: ProviderRequest = CALL) -> ProviderResponse:
    async with client.send(request) as response:
        return response


def limited(**headers: str) -> Reply:
    return Reply(429, {name.replace("_", "-"): value for name, value in headers.items()}, b'{"error": "slow down"}')


async def test_an_answer_comes_back_as_it_was_sent(api_key: str) -> None:
    reply = completion("Hi.", headers={"x-request-id": "r1"})
    async with scripted_provider(reply) as provider, client_of(provider) as client:
        response = await call(client)
    assert (response.status, response.body, response.error, response.attempts) == (200, reply.body, None, 1)
    assert provider.requests[0].body == CALL.body
    assert provider.requests[0].path == "/v1/chat/completions"
    assert provider.requests[0].headers["authorization"] == f"Bearer {api_key}"


async def test_the_client_of_the_settings_is_made() -> None:
    client = create_client(HttpSettings(base_url="http://127.0.0.1:9/v1"))
    assert isinstance(client, HttpClient)
    assert (client.default_model, client.endpoint, client.mistakes()) == (None, "http://127.0.0.1:9/v1", [])


async def test_calling_before_serving_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="not serving"):
        await call(HttpClient(HttpSettings()))


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"Retry_After": "2"}, [2.0, 2.0]),
        ({"Retry_After": "0"}, []),
        ({}, [0.375, 0.75]),
        ({"Retry_After": "soon"}, [0.375, 0.75]),
        ({"retry_after_ms": "1250"}, [1.25, 1.25]),
    ],
)
async def test_a_limited_call_waits_as_asked_and_then_succeeds(headers: dict[str, str], waits: list[float]) -> None:
    async with scripted_provider(limited(**headers), limited(**headers)) as provider, fast_client(provider) as client:
        response = await call(client)
    assert (response.status, response.attempts) == (200, 3)
    assert response.waited == pytest.approx(sum(waits))
    assert client.waiting.retries == 2
    assert client.waiting.calls == 0


async def test_a_limited_call_waits_until_the_date() -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + 5, UTC), usegmt=True)
    async with scripted_provider(limited(Retry_After=date)) as provider, fast_client(provider) as client:
        assert (await call(client)).waited == 5.0


async def test_jitter_makes_a_wait_at_most_a_fifth_and_a_half_second_longer() -> None:
    async with scripted_provider(limited(Retry_After="10")) as provider, fast_client(provider, jitter=0.99) as client:
        assert 12.0 < (await call(client)).waited <= 12.5


async def test_a_wait_above_the_bound_fails_the_call_and_names_it() -> None:
    async with scripted_provider(limited(Retry_After="16000")) as provider, fast_client(provider) as client:
        response = await call(client)
    assert len(provider.requests) == 1
    assert (response.status, response.body, response.waited) == (429, b'{"error": "slow down"}', 0.0)
    assert ("Retry-After", "16000") in response.headers
    assert str(response.error) == (
        f"rate limited: 127.0.0.1:{provider.port} asked to wait 16000 s, more than --client.max-retry-wait 60"
    )


async def test_retries_end_and_the_last_answer_is_handed_on() -> None:
    async with scripted_provider(default=limited()) as provider, fast_client(provider, max_retries=2) as client:
        response = await call(client)
    assert (response.status, response.attempts, len(provider.requests)) == (429, 3, 3)
    assert "(after 3 attempts)" in str(response.error)


async def test_an_account_without_credit_is_not_tried_again() -> None:
    broke = Reply(429, {}, b'{"error": {"code": "insufficient_quota", "message": "no credit"}}')
    async with scripted_provider(broke) as provider, fast_client(provider) as client:
        response = await call(client)
    assert response.attempts == 1
    assert response.error
    assert response.error.fatal


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
async def test_a_failing_provider_is_tried_again(status: int) -> None:
    async with scripted_provider(Reply(status), Reply(status)) as provider, fast_client(provider) as client:
        response = await call(client)
    assert (response.status, response.attempts, response.waited) == (200, 3, 1.5)


async def test_a_broken_connection_is_tried_again() -> None:
    broken = [Reply(ending="reset", status=None), Reply(body=b"{", ending="close-early")]
    async with scripted_provider(completion(), *broken) as provider, fast_client(provider) as client:
        await call(client)
        assert (await call(client)).attempts == 3


async def test_one_waits_for_what_another_was_told() -> None:
    """Real time: nothing is sent before the stated time, all is sent soon after, and not all at once."""
    callers, wait = 50, 0.4
    first = [limited(retry_after_ms=str(int(wait * 1000)))] * callers
    async with scripted_provider(*first) as provider, client_of(provider) as client:
        told: list[float] = []
        async with anyio.create_task_group() as group:
            for _ in range(callers):
                group.start_soon(call, client)
            await provider.arrived(callers)
            told.append(provider.requests[-1].arrived)
            # One that was not told itself.
            await anyio.sleep(0.05)
            group.start_soon(call, client)
            await anyio.sleep(0.05)
            assert client.waiting.calls == callers + 1
            assert client.waiting.reason == f"429 from 127.0.0.1:{provider.port}"
            assert client.waiting.until > time.time()
    later = [request.arrived for request in provider.requests[callers:]]
    assert len(later) == callers + 1
    assert min(later) >= told[0] + wait - 0.05
    assert max(later) - min(later) > 0.01
    assert client.waiting.calls == 0


async def test_a_call_cancelled_while_it_waits_is_no_longer_shown() -> None:
    async with scripted_provider(limited(Retry_After="30")) as provider, client_of(provider) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(call, client)
            with anyio.fail_after(5):
                while not client.waiting.calls:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert (client.waiting.calls, client.waiting.reason) == (0, "")


async def test_a_closed_gate_fails_those_behind_it_in_the_end() -> None:
    async with scripted_provider(default=limited(retry_after_ms="20")) as provider:
        failures: list[str] = []

        async def limited_call(client: HttpClient) -> None:
            try:
                response = await call(client)
                failures.append(str(response.error))
            except ProviderError as error:
                failures.append(str(error))

        async with client_of(provider, max_retries=1, jitter=lambda: 0.0) as client, anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(limited_call, client)
    assert len(failures) == 20
    assert all("429" in failure or "rate limited" in failure for failure in failures)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_fatal_answer_is_not_tried_again(status: int, api_key: str) -> None:
    body = f'{{"error": {{"message": "bad {api_key}"}}}}'.encode()
    async with scripted_provider(Reply(status, {}, body)) as provider, fast_client(provider) as client:
        response = await call(client)
    assert (response.attempts, response.body) == (1, body)
    assert response.error
    assert response.error.fatal
    for part in (str(status), f"127.0.0.1:{provider.port}", "big-1"):
        assert part in str(response.error)
    assert ("OPENAI_API_KEY" in str(response.error)) == (status != 404)
    assert api_key not in str(response.error)


async def test_a_redirect_is_an_error() -> None:
    moved = Reply(307, {"Location": "https://elsewhere.example/v1"})
    async with scripted_provider(moved) as provider, fast_client(provider) as client:
        response = await call(client)
    assert "https://elsewhere.example/v1" in str(response.error)
    assert len(provider.requests) == 1


async def test_an_endpoint_that_never_answered_is_given_up_soon() -> None:
    async with scripted_provider() as provider:
        closed = provider.base_url
    async with fast_client(closed) as client:
        with pytest.raises(ProviderError, match="refused the connection") as caught:
            await call(client)
    assert caught.value.fatal
    assert client.waiting.retries == 2


async def test_an_unknown_host_is_named() -> None:
    async with fast_client("http://no-such-host.invalid/v1", max_retries=0) as client:
        with pytest.raises(ProviderError, match=r"unknown host: no-such-host\.invalid") as caught:
            await call(client)
    assert caught.value.fatal


async def test_no_secret_is_in_what_goes_out_or_comes_back_as_an_error(api_key: str) -> None:
    def echo(request: Request) -> Reply:
        return Reply(400, {}, f"{request.path} {dict(request.headers)}".encode())

    async with scripted_provider(default=echo) as provider:
        base_url = f"http://user:s5-pass-88@127.0.0.1:{provider.port}/v1?key=s4-query-88"
        headers = {"Authorization": "Bearer s2-bearer-88", "X-Team": "s3-team-88"}
        async with fast_client(base_url, headers=headers) as client:
            response = await call(client)
            texts = [str(response.error), repr(response.error), client.endpoint]
    assert provider.requests[0].headers["x-team"] == "s3-team-88"
    for secret in (api_key, "s2-bearer-88", "s3-team-88", "s4-query-88", "s5-pass-88"):
        assert not any(secret in text for text in texts)
