from contextlib import AsyncExitStack

import pytest

from tests.interception.stage import new_session
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.interception.base import ServerSettings
from vfx.interception.single import SingleServer

pytestmark = pytest.mark.anyio


async def test_all_rollouts_share_one_server_with_a_secret_each() -> None:
    interception = SingleServer(ServerSettings(), ScriptedClient(ScriptedSettings()))
    async with interception.serving(), AsyncExitStack() as stack:
        slots = [await stack.enter_async_context(interception.acquire(new_session())) for _ in range(40)]
        assert len({slot.base_url for slot in slots}) == interception.num_servers == 1
        assert len({slot.api_key for slot in slots}) == 40
        assert min(len(slot.api_key) for slot in slots) >= 22
    assert (interception.num_servers, interception.peak_servers) == (0, 1)
