"""One tool server of ours, seen from the run: started, found ready, opened for rollouts, ended."""

import json
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio

from vfx._concurrency import grace
from vfx.authoring.toolset import Toolset
from vfx.errors import ConfigError, SandboxError, ToolsetError
from vfx.runtimes.programs import Program
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.gate import MCP_PATH, ROLLOUTS_PATH, proof
from vfx.tools.hosts import ToolHosts, describe_end
from vfx.tools.spec import ServerSpec

if TYPE_CHECKING:
    import aiohttp

__all__ = ["STOP_GRACE_S", "ToolServerProcess", "new_tag"]

log = logging.getLogger(__name__)

STOP_GRACE_S = 6.0
"""A little more than a toolset's `stop` may take."""
CONTROL_S = 5.0
DEATH_NOTICE_S = 2.0
LEFTOVER_S = 0.2
LAST_LINES = 20
TAG_BYTES = 24


def new_tag() -> str:
    """What opens a server for one rollout."""
    return secrets.token_urlsafe(TAG_BYTES)


class ToolServerProcess:
    """A process that serves one toolset."""

    def __init__(self, name: str, toolset: Toolset, http: "aiohttp.ClientSession", box: SubprocessRuntime) -> None:
        self.name = name
        self.toolset = toolset
        self.port = 0
        """Where it listens, on the loopback interface; 0 = nowhere yet."""
        self.tool_names: tuple[str, ...] = ()
        self.is_stopping = False
        self._key = new_tag()
        self._http = http
        self._box = box
        self._owns_box = True
        self._program: Program | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        toolset: Toolset,
        hosts: ToolHosts,
        http: "aiohttp.ClientSession",
        box: SubprocessRuntime,
        *,
        is_shared: bool,
        port: int = 0,
    ) -> "ToolServerProcess":
        """Start one and wait until it is ready.

        Args:
            name: What the environment calls it.
            toolset: What it serves.
            hosts: What it is forked from.
            http: For requests to it.
            box: Where it works; ends with it, unless the toolset is colocated with the program that works there.
            is_shared: Whether all rollouts share it.
            port: To be taken if it is free; 0 = any.

        Raises:
            ToolsetError: It did not become ready in time, or ended before.
            RunError: There is nothing that it could be forked from.
        """
        server = cls(name, toolset, http, box)
        server._owns_box = is_shared or not toolset.colocated
        is_ready = False
        try:
            with anyio.move_on_after(toolset.start_timeout):
                spec = ServerSpec.of(name, toolset, key=server._key, port=port)
                server._program = await hosts.fork(spec, toolset, box, is_one_of_many=not is_shared)
                await server._become_ready()
                is_ready = True
                return server
            problem = f"was not ready after {toolset.start_timeout:g} s (start_timeout)"
        except (ConfigError, SandboxError) as error:
            problem = f"could not be started: {error}"
        except ToolsetError as error:
            problem = str(error)
        finally:
            if not is_ready:
                await server._give_up()
        raise ToolsetError(f"tool server {name!r} ({type(toolset).__name__}) {problem}{server._last_words()}")

    @property
    def program(self) -> Program:
        """Its process."""
        if self._program is None:
            raise ToolsetError(f"tool server {self.name!r} is not started")
        return self._program

    async def _give_up(self) -> None:
        with grace(STOP_GRACE_S, f"tool server {self.name!r} to end"):
            if self._program is not None:
                self._program.abandon()
                await self._program.ended()
            if self._owns_box:
                await self._box.stop()

    async def _become_ready(self) -> None:
        line = await self.program.first_line()
        if line is None:
            raise ToolsetError(f"ended before it was ready: {await describe_end(self.program)}")
        report: Any = json.loads(line)
        if "error" in report:
            raise ToolsetError(f"could not be started: {report['error']}")
        self.port = int(report["port"])
        async with self._probed() as tag:
            self.tool_names = await _list_tools(self._http, self.url(tag))

    @asynccontextmanager
    async def _probed(self) -> AsyncGenerator[str]:
        """Make sure that it is our process that answers, and open it for a question of ours."""
        import aiohttp  # noqa: PLC0415 - loaded when the first one was started

        nonce = secrets.token_hex(16)
        try:
            async with self._http.get(f"{self._base_url}/health", params={"nonce": nonce}) as response:
                answer: Any = await response.json(content_type=None)
        except (aiohttp.ClientError, ValueError) as error:
            raise ToolsetError(f"does not answer at port {self.port}: {error or type(error).__name__}") from error
        proven = cast("dict[str, Any]", answer).get("proof") if isinstance(answer, dict) else None
        if proven != proof(self._key, nonce):
            raise ToolsetError(f"is not what answers at port {self.port}; it is not used")
        tag = new_tag()
        await self.open(tag)
        try:
            yield tag
        finally:
            await self.close(tag)

    @property
    def _base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, tag: str) -> str:
        """What a rollout calls it by."""
        return f"{self._base_url}{MCP_PATH}?rollout={tag}"

    async def open(self, tag: str, state_url: str | None = None, state_key: str | None = None) -> None:
        """Let the rollout that knows `tag` call it.

        Args:
            tag: Known to that rollout alone.
            state_url: Where its tools find the rollout's state and task; None = there are none.
            state_key: The secret for them.

        Raises:
            ToolsetError: It has died.
        """
        body = {"state_url": state_url, "state_key": state_key} if state_url else None
        await self._control("PUT", tag, body)

    async def close(self, tag: str) -> None:
        """Refuse all calls with `tag` from now on; those under way are cancelled.

        Raises:
            ToolsetError: It has died.
        """
        await self._control("DELETE", tag, None)

    async def _control(self, method: str, tag: str, body: dict[str, str | None] | None) -> None:
        import aiohttp  # noqa: PLC0415 - loaded when the first one was started

        headers = {"Authorization": f"Bearer {self._key}"}
        url = f"{self._base_url}{ROLLOUTS_PATH}{tag}"
        data = json.dumps(body).encode() if body else b""
        # A tool may keep it busy for a while; those who come wait as they would for its start.
        seconds = self.toolset.start_timeout if method == "PUT" else CONTROL_S
        try:
            with anyio.fail_after(seconds):
                async with self._http.request(method, url, data=data, headers=headers) as response:
                    if response.status == 200:
                        return
                    problem = f"answered {response.status}"
        except TimeoutError:
            problem = f"did not answer within {seconds:g} s: a tool may block its event loop"
        except aiohttp.ClientError as error:
            problem = f"did not answer: {type(error).__name__}"
        with anyio.move_on_after(DEATH_NOTICE_S):
            await self.program.ended()
        raise ToolsetError(f"tool server {self.name!r} {problem}" if self.program.is_running else await self.death())

    async def death(self) -> str:
        """How it died, once it has."""
        return f"tool server {self.name!r} died: {await describe_end(self.program)}{self._last_words()}"

    def _last_words(self) -> str:
        lines = (self._program.stderr if self._program else "").strip().splitlines()[-LAST_LINES:]
        return f"; its last words: {chr(10).join(lines)}" if lines else ""

    async def stop(self) -> None:
        """End it and all that it has started. Bounded, and safe to call twice."""
        was_running = self.program.is_running
        self.is_stopping = True
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                group.start_soon(_cut_leftovers, self.program, name=f"leftovers of {self.name}")
                await self.program.stop()
                group.cancel_scope.cancel()
        if was_running and (ended := await describe_end(self.program)) != "exit code 0":
            log.warning("tool server %r did not end well: %s%s", self.name, ended, self._last_words())
        if self._owns_box:
            await self._box.stop()


async def _cut_leftovers(program: Program) -> None:
    # The grace is for the toolset's `stop`, not for programs that outlive it.
    await program.exited()
    await anyio.sleep(LEFTOVER_S)
    program.abandon()


async def _list_tools(http: "aiohttp.ClientSession", url: str) -> tuple[str, ...]:
    """The names of the tools of a server of ours, which needs no handshake.

    Raises:
        ToolsetError: It gives none.
    """
    import aiohttp  # noqa: PLC0415 - loaded when the first one was started

    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    try:
        async with http.post(url, json=request, headers=accepted) as response:
            answer: Any = await response.json(content_type=None)
            return tuple(str(tool["name"]) for tool in answer["result"]["tools"])
    except (aiohttp.ClientError, ValueError, LookupError, TypeError) as error:
        raise ToolsetError(f"can't list its tools: {type(error).__name__}: {error}") from error
