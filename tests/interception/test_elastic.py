import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from tests.interception.stage import new_session
from tests.interception.tunnels import Tunnels
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.errors import InterceptionError, RunError, TunnelError
from vfx.interception.base import ElasticSettings, Slot
from vfx.interception.elastic import ElasticPool
from vfx.interception.tunnel import OpenTunnel

pytestmark = pytest.mark.anyio


def new_pool(tunnels: OpenTunnel | None = None, **fields: object) -> ElasticPool:
    settings = ElasticSettings.model_validate(fields)
    return ElasticPool(settings, ScriptedClient(ScriptedSettings()), open_tunnel=tunnels)


class Rollouts:
    """Concurrent acquires that hold their slot until they are released."""

    def __init__(self, pool: ElasticPool) -> None:
        self._pool = pool
        self._release = anyio.Event()
        self._news = anyio.Event()
        self.slots: list[Slot] = []
        self.errors: list[Exception] = []

    async def hold(self) -> None:
        try:
            async with self._pool.acquire(new_session()) as slot:
                self.slots.append(slot)
                self._tell()
                await self._release.wait()
        except InterceptionError as error:
            self.errors.append(error)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def settled(self, count: int) -> None:
        """Wait until `count` of them have a slot or an error."""
        with anyio.fail_after(5):
            while len(self.slots) + len(self.errors) < count:
                await self._news.wait()

    def release(self) -> None:
        self._release.set()

    @property
    def loads(self) -> list[int]:
        urls = [slot.base_url for slot in self.slots]
        return sorted(urls.count(url) for url in set(urls))


@asynccontextmanager
async def holding(pool: ElasticPool, count: int) -> AsyncGenerator[Rollouts]:
    rollouts = Rollouts(pool)
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(rollouts.hold)
        yield rollouts
        rollouts.release()


async def is_listening(slot_url: str) -> bool:
    port = int(slot_url.rpartition(":")[2].partition("/")[0])
    try:
        stream = await anyio.connect_tcp("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


async def test_one_server_is_warmed_without_delaying_anyone() -> None:
    tunnels = Tunnels(delay=30)
    with anyio.fail_after(5):
        async with new_pool(tunnels).serving():
            await anyio.wait_all_tasks_blocked()
            assert tunnels.asked == 1


async def test_sixty_four_at_once_wait_for_one_tunnel_only() -> None:
    tunnels = Tunnels(delay=0.5)
    pool = new_pool(tunnels, multiplex=4)
    tasks = len(anyio.get_running_tasks())
    async with pool.serving():
        started = time.monotonic()
        async with holding(pool, 64) as rollouts:
            await rollouts.settled(64)
            took = time.monotonic() - started
            assert rollouts.errors == []
            assert rollouts.loads == [4] * 16
            assert (pool.num_servers, pool.peak_servers, tunnels.peak_opening) == (16, 16, 16)
            urls = {slot.base_url for slot in rollouts.slots}
        assert len({slot.api_key for slot in rollouts.slots}) == 64
    assert took < 2
    assert len(anyio.get_running_tasks()) == tasks
    assert pool.num_servers == 0
    assert tunnels.open == []
    assert not any([await is_listening(url) for url in urls])


async def test_starts_that_fail_are_made_up_for() -> None:
    tunnels = Tunnels(delay=0.2, is_failing=lambda number: number % 3 == 2 and number < 16)
    pool = new_pool(tunnels, multiplex=4)
    async with pool.serving():
        started = time.monotonic()
        async with holding(pool, 64) as rollouts:
            await rollouts.settled(64)
            assert rollouts.errors == []
            assert rollouts.loads == [4] * 16
        assert time.monotonic() - started < 2
    assert tunnels.asked == 16 + 5


async def test_no_more_servers_start_at_a_time_than_allowed() -> None:
    tunnels = Tunnels(delay=0.02)
    pool = new_pool(tunnels, multiplex=1, max_starting=3)
    async with pool.serving(), holding(pool, 10) as rollouts:
        await rollouts.settled(10)
    assert tunnels.peak_opening == 3
    assert pool.peak_servers == 10


async def test_rollouts_beyond_the_last_server_wait_for_a_place() -> None:
    pool = new_pool(multiplex=1, max_servers=2)
    async with pool.serving():
        async with holding(pool, 2) as first:
            await first.settled(2)
            async with holding(pool, 2) as second:
                await anyio.wait_all_tasks_blocked()
                assert second.slots == []
                first.release()
                await second.settled(2)
        assert pool.peak_servers == 2


async def test_the_fullest_server_is_filled_first() -> None:
    pool = new_pool(multiplex=2)
    async with pool.serving(), AsyncExitStack() as stack:
        slots = [await stack.enter_async_context(pool.acquire(new_session())) for _ in range(4)]
        async with pool.acquire(new_session()) as fifth:
            assert [slot.base_url for slot in slots[:2]] == [slots[0].base_url] * 2
            assert fifth.base_url not in {slot.base_url for slot in slots}
        assert pool.num_servers == 3


async def test_start_that_always_fails_is_tried_four_times_and_gives_its_own_error() -> None:
    tunnels = Tunnels(is_failing=lambda number: True)
    pool = new_pool(tunnels, multiplex=4)
    async with pool.serving():
        await anyio.wait_all_tasks_blocked()
        async with holding(pool, 3) as rollouts:
            await rollouts.settled(3)
    assert tunnels.asked == 1 + 4
    assert [(type(error), str(error)) for error in rollouts.errors] == [(TunnelError, "tunnel 4 refused")] * 3


async def test_failed_start_touches_only_those_who_waited_for_it() -> None:
    tunnels = Tunnels(is_failing=lambda number: number > 0)
    pool = new_pool(tunnels, multiplex=2)
    async with pool.serving(), holding(pool, 3) as rollouts:
        await rollouts.settled(3)
        assert (len(rollouts.slots), len(rollouts.errors)) == (2, 1)


async def test_failed_warm_up_is_no_error() -> None:
    tunnels = Tunnels(is_failing=lambda number: number == 0)
    pool = new_pool(tunnels)
    async with pool.serving():
        await anyio.wait_all_tasks_blocked()
        async with pool.acquire(new_session()):
            assert pool.num_servers == 1


async def test_foreign_error_of_a_tunnel_is_told_as_one() -> None:
    @asynccontextmanager
    async def broken(_: str) -> AsyncGenerator[str]:
        raise OSError("no route")
        yield ""

    pool = new_pool(broken)
    async with pool.serving(), holding(pool, 1) as rollouts:
        await rollouts.settled(1)
    assert str(rollouts.errors[0]) == "tunnel: OSError: no route"


async def test_acquire_that_is_cancelled_gives_its_reservation_back() -> None:
    tunnels = Tunnels(delay=0.1)
    pool = new_pool(tunnels, multiplex=2)
    async with pool.serving():
        with anyio.move_on_after(0.01):
            async with pool.acquire(new_session()):
                pytest.fail("it can't have a place yet")
        async with holding(pool, 2) as rollouts:
            await rollouts.settled(2)
            assert rollouts.loads == [2]
    assert tunnels.asked == 1


async def test_room_that_opens_is_given_to_those_who_wait_for_a_start() -> None:
    tunnels = Tunnels(is_failing=lambda number: False)
    pool = new_pool(tunnels, multiplex=1)
    async with pool.serving(), holding(pool, 1) as first:
        await first.settled(1)
        tunnels.delay = 30
        async with holding(pool, 1) as second:
            await anyio.wait_all_tasks_blocked()
            first.release()
            await second.settled(1)
    assert second.slots[0].base_url == first.slots[0].base_url


async def test_stop_during_growth_fails_those_who_wait_and_cancels_what_starts() -> None:
    tunnels = Tunnels(delay=30)
    pool = new_pool(tunnels, multiplex=2)
    rollouts = Rollouts(pool)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group, pool.serving():
            for _ in range(8):
                group.start_soon(rollouts.hold)
            await anyio.wait_all_tasks_blocked()
            assert tunnels.opening == 4
    assert {str(error) for error in rollouts.errors} == {"the interception has stopped"}
    assert len(rollouts.errors) == 8
    assert (tunnels.opening, pool.num_servers) == (0, 0)


async def test_servers_close_in_reverse_order_though_a_teardown_fails(caplog: pytest.LogCaptureFixture) -> None:
    tunnels = Tunnels(failing_teardowns=[1])
    pool = new_pool(tunnels, multiplex=1)
    async with pool.serving(), AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(pool.acquire(new_session()))
        opened = list(tunnels.open)
    assert tunnels.closed == opened[::-1]
    assert tunnels.open == []
    assert "the far side is gone" in caplog.text


async def test_cancelled_owner_still_closes_everything() -> None:
    tunnels = Tunnels()
    pool = new_pool(tunnels, multiplex=1)
    slots: list[Slot] = []
    with anyio.CancelScope() as scope:
        async with pool.serving(), AsyncExitStack() as stack:
            slots += [await stack.enter_async_context(pool.acquire(new_session())) for _ in range(3)]
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert (pool.num_servers, tunnels.open) == (0, [])
    assert not any([await is_listening(slot.base_url) for slot in slots])


async def test_error_of_the_body_leaves_as_it_is() -> None:
    error = RunError("disk full")
    with pytest.raises(RunError) as caught:
        async with new_pool().serving():
            raise error
    assert caught.value is error


async def test_acquire_outside_of_serving_is_an_error() -> None:
    pool = new_pool()
    async with pool.serving():
        pass
    with pytest.raises(InterceptionError, match="the interception has stopped"):
        async with pool.acquire(new_session()):
            pass


async def test_idle_servers_are_closed_but_for_the_last() -> None:
    pool = new_pool(multiplex=1, idle_timeout=0.05)
    async with pool.serving():
        async with holding(pool, 4) as rollouts:
            await rollouts.settled(4)
            await anyio.sleep(0.15)
            assert pool.num_servers == 4
        with anyio.fail_after(5):
            while pool.num_servers > 1:
                await anyio.sleep(0.01)
        await anyio.sleep(0.15)
        assert pool.num_servers == 1
        async with holding(pool, 2) as rollouts:
            await rollouts.settled(2)
    assert pool.peak_servers == 4


async def test_pool_can_serve_again() -> None:
    pool = new_pool()
    for _ in range(2):
        async with pool.serving(), pool.acquire(new_session()):
            assert pool.num_servers == 1
    assert pool.num_servers == 0
