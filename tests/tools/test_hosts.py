import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.processes import descendants, is_alive
from tests.tools.serving import call, staged, text_of
from tests.tools.threaded import Threaded
from tests.tools.toolsets import Counter, Search
from vfx.errors import ToolsetError

pytestmark = pytest.mark.anyio


async def test_a_module_that_starts_threads_is_imported_by_each_server() -> None:
    async with staged(own={"threaded": Threaded}) as stage:
        for _ in range(2):
            async with stage.opened() as tools:
                assert "of the module" in text_of(await call(tools.servers["threaded"].url, "threads"))


async def test_a_class_that_its_process_can_not_find_is_told() -> None:
    class Local(Search):
        pass

    async with staged(own={"local": Local}) as stage:
        with pytest.raises(ToolsetError, match="Local is defined inside a function"):
            async with stage.opened():
                pass


async def test_a_host_that_was_killed_takes_its_servers_along_and_is_started_again() -> None:
    async with staged({"search": Search}, own={"counter": Counter}) as stage:
        async with stage.opened() as tools:
            below = [pid for host in _hosts() for pid in (host, *descendants(host))]
            for host in _hosts():
                os.kill(host, signal.SIGKILL)
            with anyio.fail_after(10), tools.watched():
                await anyio.sleep_forever()
        with anyio.fail_after(10):
            while any(map(is_alive, below)):
                await anyio.sleep(0.01)
        assert tools.death is not None
        assert tools.death.startswith("tool server '")
        with anyio.fail_after(20):
            async with stage.opened() as tools:
                assert "found" in text_of(await call(tools.servers["search"].url, "query", text="x"))
                assert text_of(await call(tools.servers["counter"].url, "add", number=1)) == "101"
        assert stage.servers.restarts == 1


def _hosts() -> list[int]:
    """The first process of each line of descent that runs the host's module, which is the one all others come from."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())}
    hosts = [pid for pid, command in commands.items() if b"vfx.tools.host" in command]
    return [pid for pid in hosts if not any(pid in descendants(other) for other in hosts if other != pid)]
