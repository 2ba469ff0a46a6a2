import anyio
import pytest

from tests.interception.tunnels import Tunnels
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.errors import InterceptionError, TunnelError
from vfx.interception.fleet import Fleet
from vfx.interception.server import Server

pytestmark = pytest.mark.anyio

CLIENT = ScriptedClient(ScriptedSettings())


async def test_server_outlives_who_started_it() -> None:
    fleet, server = Fleet(), Server(CLIENT)
    async with fleet.running():
        async with anyio.create_task_group() as group:
            group.start_soon(fleet.start, server)
        assert (server.is_up, fleet.num_up) == (True, 1)
    assert (server.is_up, fleet.num_up, fleet.peak) == (False, 0, 1)


async def test_failed_start_leaves_nothing() -> None:
    fleet, server = Fleet(), Server(CLIENT, open_tunnel=Tunnels(is_failing=lambda number: True))
    async with fleet.running():
        with pytest.raises(TunnelError, match="tunnel 0 refused"):
            await fleet.start(server)
        assert (fleet.num_up, fleet.peak) == (0, 0)
        assert server.ended.is_set()


async def test_nothing_starts_after_the_end() -> None:
    fleet = Fleet()
    async with fleet.running():
        pass
    with pytest.raises(InterceptionError, match="has stopped"):
        await fleet.start(Server(CLIENT))


async def test_start_that_is_cancelled_closes_what_it_had_opened() -> None:
    fleet, tunnels = Fleet(), Tunnels(delay=30)
    server = Server(CLIENT, open_tunnel=tunnels)
    async with fleet.running():
        with anyio.move_on_after(0.05):
            await fleet.start(server)
        assert server.ended.is_set()
        assert tunnels.opening == 0
