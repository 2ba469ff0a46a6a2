"""Tool servers for tests: real processes, called over HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

import vfx
from vfx.authoring.tool_settings import ToolSettings, tool_settings
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.servers import ToolServers

__all__ = ["STATE", "Stage", "call", "options", "post", "staged", "text_of"]

STATE = ("http://127.0.0.1:9", "a-state-key")
JSON_RPC = {"Accept": "application/json, text/event-stream"}


def options(entries: Mapping[str, type[vfx.Toolset]], data: Mapping[str, Any] | None = None) -> ToolSettings:
    """Tool servers by name, with what was configured of them."""
    return tool_settings("Test", entries).model_validate(data or {})


class Stage:
    """What a rollout has, without a rollout."""

    def __init__(self, servers: ToolServers, programs: Programs, own: Mapping[str, type[vfx.Toolset]]) -> None:
        self.servers = servers
        self.runtime = SubprocessRuntime(SubprocessSettings(), programs)
        self.task = type("Task", (vfx.Task,), {"toolsets": own, "__module__": __name__})(prompt="x")

    def opened(self, key: str = "a-state-key") -> Any:
        return self.servers.opened(self.task, self.runtime, (STATE[0], key))


@asynccontextmanager
async def staged(
    shared: Mapping[str, type[vfx.Toolset]] | None = None,
    own: Mapping[str, type[vfx.Toolset]] | None = None,
    data: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Stage]:
    """Serve toolsets; `data` configures all of them by name."""
    shared, own, data = shared or {}, own or {}, data or {}
    for_all = options(shared, {name: entry for name, entry in data.items() if name not in own})
    for_each = options(own, {name: entry for name, entry in data.items() if name in own})
    programs = Programs()
    async with programs.serving():
        servers = ToolServers(for_all, for_each, programs)
        async with servers.serving():
            stage = Stage(servers, programs, own)
            try:
                yield stage
            finally:
                await stage.runtime.stop()


async def post(url: str, body: Any, headers: Mapping[str, str] | None = None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(url, json=body, headers={**JSON_RPC, **(headers or {})})


async def call(url: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool."""
    params = {"name": tool, "arguments": arguments}
    response = await post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert response.status_code == 200, response.text
    return response.json()["result"]


def text_of(result: Mapping[str, Any]) -> str:
    [part] = result["content"]
    return part["text"]
