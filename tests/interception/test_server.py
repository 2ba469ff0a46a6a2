import signal
import time

import anyio
import httpx
import pytest

from tests.interception.stage import new_session, running
from tests.interception.tunnels import Tunnels
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.errors import TunnelError
from vfx.interception.server import Server
from vfx.interception.tunnel import OpenTunnel

pytestmark = pytest.mark.anyio


def new_server(open_tunnel: OpenTunnel | None = None) -> Server:
    return Server(ScriptedClient(ScriptedSettings()), open_tunnel=open_tunnel)


async def connect(server: Server) -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(server.url.rpartition(":")[2]))


async def test_server_listens_on_loopback_until_it_is_stopped() -> None:
    async with running(new_server()) as server:
        assert server.is_up
        assert server.url.startswith("http://127.0.0.1:")
        await (await connect(server)).aclose()
    assert not server.is_up
    assert server.ended.is_set()
    with pytest.raises(OSError, match="connect"):
        await connect(server)


async def test_signal_handlers_stay_as_they_are() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with running(new_server()):
        during = {number: signal.getsignal(number) for number in before}
    assert before == during == {number: signal.getsignal(number) for number in before}


async def test_many_servers_stop_at_once_though_connections_are_open() -> None:
    servers = [new_server() for _ in range(16)]
    peers: list[anyio.abc.SocketStream] = []
    started = 0.0
    async with anyio.create_task_group() as group:
        for server in servers:
            await group.start(server.run)
            idle, half = await connect(server), await connect(server)
            await half.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
            peers += [idle, half]
        started = time.monotonic()
        for server in servers:
            server.stop()
    assert time.monotonic() - started < 1
    for peer in peers:
        with anyio.fail_after(1), pytest.raises(anyio.EndOfStream):
            await peer.receive()
        await peer.aclose()


async def test_stop_does_not_wait_for_a_body_that_never_ends() -> None:
    session = new_session()
    with anyio.fail_after(1.5):
        async with running(new_server()) as server, server.slot(session) as slot:
            peer = await connect(server)
            head = f"x-api-key: {slot.api_key}\r\ncontent-type: application/json\r\ncontent-length: 99"
            await peer.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n{{".encode())
            await anyio.wait_all_tasks_blocked()
            server.stop()
            await server.ended.wait()
            await peer.aclose()
    assert session.trace.calls == []


async def test_program_that_does_not_read_does_not_hold_the_server_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfx.interception.server.CLOSE_S", 0.1)
    settings = ScriptedSettings(replies=("word " * 2_000_000,))
    server = Server(ScriptedClient(settings))
    async with running(server), server.slot(new_session()) as slot:
        peer = await connect(server)
        body = b'{"messages":[{"role":"user","content":"x"}]}'
        head = f"x-api-key: {slot.api_key}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        await peer.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n".encode() + body)
        assert await peer.receive(15) == b"HTTP/1.1 200 OK"
        with anyio.fail_after(2):
            server.stop()
            await server.ended.wait()
        await peer.aclose()


async def test_cancellation_does_not_end_a_server_that_is_up() -> None:
    server = new_server()
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            assert server.is_up
            server.stop()
    assert server.ended.is_set()


async def test_programs_are_given_the_public_url_and_its_host_is_served() -> None:
    tunnels = Tunnels(public_url="https://abc.tunnel.example")
    async with running(new_server(tunnels)) as server, server.slot(new_session()) as slot:
        assert slot.base_url == "https://abc.tunnel.example/v1"
        async with httpx.AsyncClient(base_url=tunnels.open[0], trust_env=False) as http:
            hosts = ["abc.tunnel.example", "ABC.tunnel.example:443", "tunnel.example", "x.abc.tunnel.example"]
            statuses = [(await http.get("/health", headers={"Host": host})).status_code for host in hosts]
    assert statuses == [200, 200, 403, 403]
    assert tunnels.open == []


async def test_server_without_its_tunnel_does_not_stay() -> None:
    server = new_server(Tunnels(is_failing=lambda number: True))
    with pytest.RaisesGroup(pytest.RaisesExc(TunnelError, match="tunnel 0 refused")):
        async with running(server):
            pass
    assert server.ended.is_set()
