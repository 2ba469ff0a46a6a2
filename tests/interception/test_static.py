from contextlib import AsyncExitStack

import anyio
import pytest

from tests.interception.stage import new_session
from tests.interception.tunnels import Tunnels
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.errors import InterceptionError, RunError
from vfx.interception.base import ServerSettings, StaticSettings
from vfx.interception.static import StaticPool
from vfx.interception.tunnel import OpenTunnel

pytestmark = pytest.mark.anyio


def new_pool(count: int, open_tunnel: OpenTunnel | None = None) -> StaticPool:
    settings = StaticSettings(servers=(ServerSettings(),) * count)
    return StaticPool(settings, ScriptedClient(ScriptedSettings()), open_tunnel=open_tunnel)


async def test_all_servers_start_at_the_same_time() -> None:
    tunnels = Tunnels(delay=0.05)
    pool = new_pool(4, tunnels)
    async with pool.serving():
        assert pool.num_servers == tunnels.peak_opening == 4
    assert (pool.num_servers, pool.peak_servers, tunnels.open) == (0, 4, [])


async def test_rollouts_land_on_the_least_loaded() -> None:
    pool = new_pool(3)
    async with pool.serving(), AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(pool.acquire(new_session()))).base_url for _ in range(5)]
        async with AsyncExitStack() as short:
            slots = [await short.enter_async_context(pool.acquire(new_session())) for _ in range(4)]
        last = await stack.enter_async_context(pool.acquire(new_session()))
    assert [urls.count(url) for url in dict.fromkeys(urls)] == [2, 2, 1]
    assert slots[0].base_url == last.base_url == urls[2]


async def test_one_that_does_not_start_fails_the_run_and_takes_the_others_down() -> None:
    tunnels = Tunnels(is_failing=lambda number: number == 1)
    pool = new_pool(3, tunnels)
    with pytest.raises(RunError, match="the interception could not be started: tunnel 1 refused"):
        async with pool.serving():
            pytest.fail("it can't serve")
    assert (pool.num_servers, tunnels.open, tunnels.opening) == (0, [], 0)


async def test_servers_close_in_reverse_order() -> None:
    tunnels = Tunnels(failing_teardowns=[2])
    async with new_pool(4, tunnels).serving():
        opened = list(tunnels.open)
    assert tunnels.closed == opened[::-1]


async def test_acquire_outside_of_serving_is_an_error() -> None:
    pool = new_pool(1)
    async with pool.serving():
        await anyio.wait_all_tasks_blocked()
    with pytest.raises(InterceptionError, match="not serving"):
        async with pool.acquire(new_session()):
            pass
