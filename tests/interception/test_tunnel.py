import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.interception.tunnels import Tunnels
from vfx.errors import TunnelError
from vfx.interception.tunnel import tunnelled

pytestmark = pytest.mark.anyio

LOCAL = "http://127.0.0.1:1"


async def test_tunnel_is_open_as_long_as_the_context() -> None:
    tunnels = Tunnels(public_url="https://x.example")
    async with tunnelled(tunnels, LOCAL) as url:
        assert (url, tunnels.open) == ("https://x.example", [LOCAL])
    assert tunnels.closed == [LOCAL]


async def test_foreign_error_is_told_as_one_of_the_tunnel() -> None:
    @asynccontextmanager
    async def broken(_: str) -> AsyncGenerator[str]:
        raise OSError("no route")
        yield ""

    with pytest.RaisesGroup(pytest.RaisesExc(TunnelError, match="^tunnel: OSError: no route$")):
        async with tunnelled(broken, LOCAL):
            pytest.fail("it is not open")


async def test_failed_closing_is_logged_and_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with tunnelled(Tunnels(failing_teardowns=[0]), LOCAL):
        pass
    assert caplog.messages == ["closing a tunnel: tunnel: OSError: the far side is gone"]


async def test_tunnel_that_does_not_close_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfx.interception.tunnel.CLOSE_S", 0.05)
    tunnels = Tunnels(close_delay=30)
    with anyio.fail_after(2):
        async with tunnelled(tunnels, LOCAL):
            pass
    assert (tunnels.open, tunnels.closed_in_peace) == ([], 0)


async def test_tunnel_closes_in_peace_when_everything_is_cancelled() -> None:
    tunnels = Tunnels(close_delay=0.05)
    with anyio.CancelScope() as scope:
        async with tunnelled(tunnels, LOCAL):
            scope.cancel()
            await anyio.sleep_forever()
    assert tunnels.closed_in_peace == 1


async def test_cancellation_ends_an_opening_tunnel() -> None:
    tunnels = Tunnels(delay=30)
    with anyio.move_on_after(0.02):
        async with tunnelled(tunnels, LOCAL):
            pytest.fail("it is not open")
    assert (tunnels.opening, tunnels.open) == (0, [])
