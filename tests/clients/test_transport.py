import gzip
import random
import resource
import socket
import time
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.support.provider import Reply, completion, scripted_provider, stream
from vfx.clients.base import HttpSettings, ProviderRequest
from vfx.clients.endpoint import Endpoint
from vfx.clients.retry import NotConnectedError
from vfx.clients.transport import Transport, open_transport
from vfx.errors import ProviderError

pytestmark = pytest.mark.anyio

CALL = ProviderRequest("chat/completions", b'{"model": "big-1", "messages": []}')
STREAM = ProviderRequest("chat/completions", b'{"model": "big-1", "stream": true}', is_stream=True)
IDLE_S = 0.3


@asynccontextmanager
async def transport_to(base_url: str, idle_timeout: float = 10.0) -> AsyncGenerator[Transport]:
    async with open_transport(Endpoint(HttpSettings(base_url=base_url)), idle_timeout) as transport:
        yield transport


async def read(transport: Transport, request: ProviderRequest = STREAM) -> bytes:
    exchange = await transport.exchange(request)
    try:
        if exchange.chunks is None:
            return exchange.body
        return b"".join([chunk async for chunk in exchange.chunks])
    finally:
        exchange.close()


async def test_a_stream_comes_as_it_was_sent_and_when_it_was_sent() -> None:
    reply = stream("one", " two", chunk_delay=[0, 0, 5])
    async with scripted_provider(reply) as provider, transport_to(provider.base_url) as transport:
        exchange = await transport.exchange(STREAM)
        assert exchange.chunks
        with anyio.fail_after(2):
            received = b""
            while b"one" not in received:
                received += await anext(exchange.chunks)
        exchange.close()
        with anyio.fail_after(1):
            await provider.requests[0].gone.wait()


async def test_a_whole_stream_is_byte_for_byte_the_providers() -> None:
    reply = stream("one", " two")
    async with scripted_provider(reply, completion()) as provider, transport_to(provider.base_url) as transport:
        assert await read(transport) == b"".join(reply.chunks or ())
        await read(transport, CALL)
    assert [request.connection for request in provider.requests] == [0, 0]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_what_is_compressed_comes_unpacked(encoding: str) -> None:
    reply = stream("one", " two")
    raw = b"".join(reply.chunks or ())
    packed = gzip.compress(raw) if encoding == "gzip" else zlib.compress(raw)
    pieces = [packed[:10], packed[10:25], packed[25:]]
    headers = {"Content-Encoding": encoding, "Content-Type": "text/event-stream"}
    replies = (Reply(200, headers, packed), Reply(200, headers, chunks=pieces))
    async with scripted_provider(*replies) as provider, transport_to(provider.base_url) as transport:
        exchange = await transport.exchange(CALL)
        assert exchange.body == raw
        assert exchange.headers == [("Content-Type", "text/event-stream")]
        assert await read(transport) == raw
    assert {request.headers["accept-encoding"] for request in provider.requests} == {"gzip, deflate"}


async def test_what_was_packed_otherwise_is_told() -> None:
    reply = Reply(200, {"Content-Encoding": "gzip"}, b"this is no gzip")
    async with scripted_provider(reply) as provider, transport_to(provider.base_url) as transport:
        with pytest.raises(NotConnectedError, match="can't be unpacked"):
            await transport.exchange(CALL)


async def test_headers_for_programs_pass_and_others_do_not() -> None:
    headers = {
        "x-ratelimit-remaining": "7",
        "x-request-id": "r1",
        "Retry-After": "3",
        "Set-Cookie": "a=b",
        "Keep-Alive": "timeout=5",
        "Connection": "X-Hop",
        "X-Hop": "1",
    }
    async with scripted_provider(completion(headers=headers)) as provider, transport_to(provider.base_url) as transport:
        exchange = await transport.exchange(CALL)
    assert {name.lower() for name, _ in exchange.headers} == {
        "content-type",
        "x-ratelimit-remaining",
        "x-request-id",
        "retry-after",
    }


async def test_a_cookie_is_not_sent_back() -> None:
    replies = (completion(headers={"Set-Cookie": "session=1; Path=/"}), completion())
    async with scripted_provider(*replies) as provider, transport_to(provider.base_url) as transport:
        await read(transport, CALL)
        await read(transport, CALL)
    assert "cookie" not in provider.requests[1].headers


async def test_headers_of_the_program_arrive() -> None:
    passing = (("anthropic-beta", "x"), ("X-Custom", "1"))
    request = ProviderRequest(CALL.path, CALL.body, passing)
    async with scripted_provider() as provider, transport_to(provider.base_url) as transport:
        await read(transport, request)
    sent = provider.requests[0].headers
    assert (sent["anthropic-beta"], sent["x-custom"], sent["content-type"]) == ("x", "1", "application/json")


async def test_a_large_body_arrives_whole() -> None:
    body = b'{"model": "' + b"x" * 5_000_000 + b'"}'
    async with scripted_provider() as provider, transport_to(provider.base_url) as transport:
        await read(transport, ProviderRequest("chat/completions", body))
    assert provider.requests[0].body == body


async def test_large_headers_are_no_error() -> None:
    reply = completion(headers={"x-debug": "d" * 20_000})
    async with scripted_provider(reply) as provider, transport_to(provider.base_url) as transport:
        assert (await transport.exchange(CALL)).status == 200


@contextmanager
def unaccepting_listener() -> Generator[str]:
    """A listener whose queue is full, so that no connection comes about."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers: list[socket.socket] = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        try:
            yield f"http://127.0.0.1:{address[1]}/v1"
        finally:
            for filler in fillers:
                filler.close()


async def assert_idle(base_url: str, request: ProviderRequest) -> None:
    async with transport_to(base_url, IDLE_S) as transport:
        begun = time.monotonic()
        with anyio.fail_after(5), pytest.raises(ProviderError, match=r"provider idle timeout: no byte for 0\.3 s from"):
            await read(transport, request)
        assert time.monotonic() - begun >= IDLE_S


@pytest.mark.parametrize("request_", [CALL, STREAM])
async def test_a_provider_that_never_answers_is_idle(request_: ProviderRequest) -> None:
    async with scripted_provider(Reply(status=None, ending="hang")) as provider:
        await assert_idle(provider.base_url, request_)
        with anyio.fail_after(1):
            await provider.requests[0].gone.wait()


@pytest.mark.parametrize("request_", [CALL, STREAM])
async def test_a_provider_that_stops_in_the_middle_is_idle(request_: ProviderRequest) -> None:
    async with scripted_provider(stream("one", finish_reason=None, is_done=False, ending="hang")) as provider:
        await assert_idle(provider.base_url, request_)


async def test_a_provider_that_takes_no_connection_is_idle() -> None:
    with unaccepting_listener() as base_url:
        await assert_idle(base_url, CALL)


async def test_a_provider_that_stops_reading_is_idle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        await assert_idle(base_url, ProviderRequest("chat/completions", b"x" * 30_000_000))


async def test_the_timeout_counts_from_the_last_byte() -> None:
    reply = stream(*"abcdef", chunk_delay=IDLE_S / 2)
    async with scripted_provider(reply) as provider, transport_to(provider.base_url, IDLE_S) as transport:
        assert await read(transport) == b"".join(reply.chunks or ())


@pytest.mark.parametrize("ending", ["reset", "close-early"])
async def test_a_stream_that_breaks_is_incomplete(ending: str) -> None:
    reply = stream("one", is_done=False, ending="reset" if ending == "reset" else "close-early")
    async with scripted_provider(reply) as provider, transport_to(provider.base_url) as transport:
        with pytest.raises(ProviderError, match="provider stream incomplete"):
            await read(transport)


@pytest.mark.parametrize("request_", [CALL, STREAM])
async def test_a_cancelled_call_closes_its_connection(request_: ProviderRequest) -> None:
    reply = stream("one", is_done=False, ending="hang")
    async with scripted_provider(reply) as provider, transport_to(provider.base_url) as transport:
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport, request_)
            await provider.arrived()
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        with anyio.fail_after(1):
            await provider.requests[0].gone.wait()


async def test_many_calls_run_at_the_same_time() -> None:
    async with (
        scripted_provider(default=completion(delay=0.5)) as provider,
        transport_to(provider.base_url) as transport,
        anyio.create_task_group() as group,
    ):
        for _ in range(200):
            group.start_soon(read, transport, CALL)
    assert provider.peak == 200


async def test_the_connection_that_was_used_last_is_used_again() -> None:
    async with (
        scripted_provider(default=completion(delay=0.05)) as provider,
        transport_to(provider.base_url) as transport,
    ):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(read, transport, CALL)
        for _ in range(3):
            await read(transport, CALL)
    connections = [request.connection for request in provider.requests]
    assert len(set(connections[:4])) == 4
    assert len(set(connections[4:])) == 1


async def test_calls_beyond_the_bound_on_connections_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    async with (
        scripted_provider(default=completion(delay=0.02)) as provider,
        transport_to(provider.base_url) as transport,
        anyio.create_task_group() as group,
    ):
        for _ in range(9):
            group.start_soon(read, transport, CALL)
    assert provider.peak == 3
    assert len(provider.requests) == 9


async def test_calls_cancelled_at_any_moment_leave_no_connection_behind() -> None:
    moments = random.Random(7)
    slow = stream("one", " two", chunk_delay=[0.005, 0.01, 0.005])

    async def cancelled(transport: Transport, request: ProviderRequest, after: float) -> None:
        with anyio.move_on_after(after):
            await read(transport, request)

    async with (
        scripted_provider(default=lambda request: slow if b"stream" in request.body else completion(delay=0.01)) as it,
        transport_to(it.base_url) as transport,
    ):
        longest = 10.0
        for _ in range(8):
            start = time.monotonic()
            async with anyio.create_task_group() as group:
                for number in range(20):
                    after = moments.uniform(0, longest) if longest < 10 else longest
                    group.start_soon(cancelled, transport, STREAM if number % 2 else CALL, after)
            # As long as all took that nobody cancelled, so that a busy machine cancels at the same moments.
            longest = min(longest, time.monotonic() - start)
        connector = transport._session.connector  # pyright: ignore[reportPrivateUsage]
        assert connector is not None
        assert not connector._acquired  # pyright: ignore[reportPrivateUsage]
        assert await read(transport, CALL)
        with anyio.fail_after(5):
            while it._running:  # pyright: ignore[reportPrivateUsage]
                await anyio.sleep(0.005)
    assert any(request.left for request in it.requests)


async def test_a_remote_host_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_provider() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with transport_to("http://api.example.invalid/v1") as transport:
            await read(transport, CALL)
    assert proxy.requests[0].path == "http://api.example.invalid/v1/chat/completions"


async def test_a_loopback_host_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with scripted_provider() as provider, transport_to(provider.base_url) as transport:
        assert (await transport.exchange(CALL)).status == 200


async def test_what_is_no_http_is_told_without_our_headers(api_key: str) -> None:
    async def babble(peer: SocketStream) -> None:
        async with peer:
            await peer.receive()
            await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, babble)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django here
        async with transport_to(f"http://127.0.0.1:{port}/v1") as transport:
            with pytest.raises(NotConnectedError, match="no proper HTTP") as caught:
                await transport.exchange(CALL)
        assert api_key not in repr(caught.value.__cause__)
        group.cancel_scope.cancel()
