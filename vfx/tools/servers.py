"""All tool servers of a run, as the runner uses them: shared ones, those of one rollout, those that run elsewhere."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

import anyio
from anyio.abc import TaskGroup

from vfx._concurrency import grace
from vfx.authoring.harness import ToolServer
from vfx.authoring.task import Task
from vfx.authoring.tool_settings import AddedServer, ToolSettings
from vfx.authoring.toolset import Toolset, named_toolsets, tool_methods
from vfx.errors import Mistake, RunError, SandboxError, ToolsetError
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.external import ask_for_tools, header_mistakes, resolve_headers
from vfx.tools.hosts import ToolHosts
from vfx.tools.server import STOP_GRACE_S, ToolServerProcess, new_tag
from vfx.tools.shared import SharedServer

if TYPE_CHECKING:
    import aiohttp

__all__ = ["OpenTools", "StateAccess", "ToolServers"]

log = logging.getLogger(__name__)

MAX_STARTING = 16
CLOSE_S = 10.0
IN_TURN_S = 3.0

StateAccess = tuple[str, str]
"""Where the rollout's state is, and the secret for it."""


class OpenTools:
    """The tool servers of one rollout while it runs."""

    def __init__(self) -> None:
        self.servers: dict[str, ToolServer] = {}
        """What the program is told."""
        self.tool_names: dict[str, tuple[str, ...]] = {}
        """Of servers of ours."""
        self.death: str | None = None
        """How one of them died; None as long as none has."""
        self._scope: anyio.CancelScope | None = None

    def add(self, process: ToolServerProcess, url: str) -> None:
        """Tell of a server of ours that is open at `url`."""
        self.servers[process.name] = ToolServer(process.name, url)
        self.tool_names[process.name] = process.tool_names

    def fail(self, cause: str) -> None:
        """End what is watched: a server has died."""
        self.death = self.death or cause
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def watched(self) -> Generator[None]:
        """Cancel the body when a server dies; `death` then says how."""
        with anyio.CancelScope() as self._scope:
            if self.death is not None:
                self._scope.cancel()
            yield


class ToolServers:
    """Started in `serving`, opened for each rollout."""

    def __init__(self, shared: ToolSettings, own: ToolSettings, programs: Programs) -> None:
        """See the class.

        Args:
            shared: Those that all rollouts share.
            own: Those that each rollout has for itself.
            programs: Of the run; serving as long as these are.
        """
        self._programs = programs
        self._hosts = ToolHosts(programs)
        self._own = {name: entry for name, entry in own.servers.items() if _is_ours(entry)}
        self._shared = {
            name: SharedServer(name, entry, partial(self._start_shared, name, entry))
            for name, entry in shared.servers.items()
            if _is_ours(entry)
        }
        self._places = {
            **{name: (f"--taskset.tools.{name}", entry) for name, entry in shared.servers.items()},
            **{name: (f"--taskset.task.tools.{name}", entry) for name, entry in own.servers.items()},
        }
        self._twice = sorted(shared.servers.keys() & own.servers.keys())
        self._added = {name for name, entry in own.servers.items() if isinstance(entry, AddedServer)}
        self._of_tasks = frozenset(own.servers)
        self._elsewhere: dict[str, ToolServer] = {}
        self._tool_names: dict[str, tuple[str, ...]] = {}
        self._http: aiohttp.ClientSession | None = None
        self._group: TaskGroup | None = None

    @property
    def restarts(self) -> int:
        """How often shared servers were started again."""
        return sum(server.restarts for server in self._shared.values())

    def __bool__(self) -> bool:
        """True when rollouts have tools."""
        return bool(self._places)

    def mistakes(self) -> list[Mistake]:
        """What keeps them from being served and can be known before anything is started."""
        mistakes = [
            Mistake(f"a shared and a rollout's own tool server are both named {name}", f"--taskset.tools.{name}")
            for name in self._twice
        ]
        for name, (where, entry) in self._places.items():
            if entry.url is None and entry.headers:
                mistakes.append(Mistake("headers are for a server that runs elsewhere", f"{where}.headers", "give url"))
            else:
                mistakes += header_mistakes(entry.headers, where)
            if isinstance(entry, Toolset) and entry.colocated and name in self._shared:
                what = "a server that all rollouts share can't be in the box of one"
                mistakes.append(Mistake(what, f"{where}.colocated"))
            if isinstance(entry, Toolset) and name not in self._shared and _has_own_restarts(entry):
                what = "a rollout's own tool server ends with its rollout, only a shared one is started again"
                mistakes.append(Mistake(what, f"{where}.max-restarts", "--retries.on toolset tries the rollout again"))
        known = {
            name: tuple(tool_methods(type(entry)))
            for name, (_, entry) in self._places.items()
            if isinstance(entry, Toolset) and entry.url is None
        }
        return [*mistakes, *(Mistake(clash, "toolsets") for clash in _clashes(known))]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Shared servers are up inside, and what runs elsewhere has answered.

        Raises:
            RunError: With every server that is not ready and why.
        """
        if not self._places:
            yield
            return
        import aiohttp  # noqa: PLC0415 - 0.1 s that runs without tools need not pay

        async with AsyncExitStack() as stack:
            # One request at a time on a connection that may end with its server at any moment.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._http = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            )
            stack.push_async_callback(self._stop)
            await self._start()
            async with anyio.create_task_group() as group:
                self._group = group
                for server in self._shared.values():
                    group.start_soon(server.watch, name=f"tool server {server.name}")
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()

    async def _start(self) -> None:
        failures: list[str] = []
        limiter = anyio.CapacityLimiter(MAX_STARTING)

        async def attempt(begin: Callable[[], Awaitable[None]]) -> None:
            async with limiter:
                try:
                    await begin()
                except (ToolsetError, RunError) as error:
                    failures.append(str(error))

        if self._shared or self._own:
            await self._hosts.root()
        async with anyio.create_task_group() as group:
            for name, server in self._shared.items():
                group.start_soon(attempt, partial(self._bring_up, server), name=f"start {name}")
            for name, (_, entry) in self._places.items():
                if entry.url is not None:
                    group.start_soon(attempt, partial(self._ask, name, entry), name=f"ask {name}")
        if failures:
            raise RunError("\n".join(sorted(failures)))
        static = {name: tuple(tool_methods(type(entry))) for name, entry in self._own.items()}
        if clashes := _clashes({**self._tool_names, **static}):
            raise RunError("; ".join(clashes))

    async def _bring_up(self, server: SharedServer) -> None:
        self._tool_names[server.name] = (await server.start()).tool_names

    async def _ask(self, name: str, entry: Toolset | AddedServer) -> None:
        url, headers = entry.url or "", resolve_headers(entry.headers)
        try:
            self._tool_names[name] = await ask_for_tools(url, headers, entry.start_timeout)
        except ToolsetError as error:
            raise ToolsetError(f"tool server {name!r} at {self._places[name][0]}.url {error}") from error
        self._elsewhere[name] = ToolServer(name, url, headers)

    async def _start_shared(self, name: str, toolset: Toolset, port: int) -> ToolServerProcess:
        box = self._box(toolset)
        return await ToolServerProcess.start(name, toolset, self._hosts, self._session, box, is_shared=True, port=port)

    def _box(self, toolset: Toolset) -> SubprocessRuntime:
        return SubprocessRuntime(SubprocessSettings(env=toolset.env, stop_grace=STOP_GRACE_S), self._programs)

    @property
    def _session(self) -> "aiohttp.ClientSession":
        if self._http is None:
            raise RunError("tool servers are used only inside serving()")
        return self._http

    async def _stop(self) -> None:
        """End the shared ones, the last first; one that takes long keeps the others only for its share of the time."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for server in reversed(self._shared.values()):
                    ended = anyio.Event()
                    group.start_soon(_end, server, ended, name=f"stop {server.name}")
                    with grace(IN_TURN_S / len(self._shared), f"tool server {server.name!r}"):
                        await ended.wait()
        self._http = None

    def names_for(self, task: Task) -> list[str]:
        """The servers that rollouts of `task` have."""
        declared = named_toolsets(type(task).__name__, type(task).toolsets)
        return [name for name in self._places if name not in self._of_tasks or name in self._added or name in declared]

    @asynccontextmanager
    async def opened(self, task: Task, runtime: SubprocessRuntime, state: StateAccess) -> AsyncGenerator[OpenTools]:
        """The tool servers of one rollout, with one of its own started for each that it does not share.

        Args:
            task: What it works at.
            runtime: Its program's box.
            state: Given to servers of ours, never to its program.

        Raises:
            ToolsetError: One can't be started, or has died for good.
        """
        tools = OpenTools()
        names = self.names_for(task)
        async with AsyncExitStack() as stack:
            for process in await self._start_own(stack, [name for name in names if name in self._own], runtime):
                if self._group is not None:
                    self._group.start_soon(_watch, process, tools, name=f"watch {process.name}")
                tag = new_tag()
                await process.open(tag, *state)
                tools.add(process, runtime.url_for(process.url(tag)))
                stack.push_async_callback(_check, process, tools)
            for name in names:
                if name in self._elsewhere:
                    tools.servers[name] = self._elsewhere[name]
                elif name in self._shared:
                    tag = new_tag()
                    process = await self._shared[name].open(tag, state, tools)
                    stack.push_async_callback(_close, process, tag, tools)
                    stack.callback(self._shared[name].release, tools)
                    tools.add(process, runtime.url_for(process.url(tag)))
            if clashes := _clashes({**self._tool_names, **tools.tool_names}):
                raise ToolsetError("; ".join(clashes))
            tools.servers = {name: tools.servers[name] for name in names}
            yield tools

    async def _start_own(
        self, stack: AsyncExitStack, names: list[str], runtime: SubprocessRuntime
    ) -> list[ToolServerProcess]:
        started: list[ToolServerProcess] = []
        failures: list[str] = []

        async def start(name: str) -> None:
            toolset = self._own[name]
            try:
                box = runtime if toolset.colocated else self._box(toolset)
                process = await ToolServerProcess.start(name, toolset, self._hosts, self._session, box, is_shared=False)
            except (ToolsetError, RunError) as error:
                failures.append(str(error))
            else:
                started.append(process)
                stack.push_async_callback(process.stop)

        async with anyio.create_task_group() as starting:
            for name in names:
                starting.start_soon(start, name, name=f"start {name}")
        if failures:
            raise ToolsetError("\n".join(sorted(failures)))
        return started


async def _end(server: SharedServer, ended: anyio.Event) -> None:
    try:
        await server.stop()
    except (OSError, RunError, SandboxError) as error:
        log.warning("tool server %r could not be ended: %s", server.name, error)
    finally:
        ended.set()


async def _close(process: ToolServerProcess, tag: str, tools: OpenTools) -> None:
    with grace(CLOSE_S, f"tool server {process.name!r}"):
        try:
            await process.close(tag)
        except ToolsetError as error:
            log.warning("%s", error)
        await _check(process, tools)


async def _check(process: ToolServerProcess, tools: OpenTools) -> None:
    """Find a death that came too late for the program to notice."""
    if not process.program.is_running:
        tools.fail(await process.death())


async def _watch(process: ToolServerProcess, tools: OpenTools) -> None:
    await process.program.ended()
    if not process.is_stopping:
        tools.fail(await process.death())


def _is_ours(entry: Toolset | AddedServer) -> TypeGuard[Toolset]:
    return isinstance(entry, Toolset) and entry.url is None


def _clashes(tool_names: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with tools that the model could not tell apart."""
    owners: dict[str, list[str]] = {}
    for server in sorted(tool_names):
        for name in tool_names[server]:
            owners.setdefault(name, []).append(server)
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, servers in owners.items():
        if len(servers) > 1:
            shared.setdefault(tuple(servers), []).append(name)
    return [
        f"the tool servers {' and '.join(servers)} all have a tool {', '.join(names)}: rename it in one of them"
        for servers, names in shared.items()
    ]


def _has_own_restarts(toolset: Toolset) -> bool:
    # Not whether it was given: a saved configuration gives all.
    return toolset.max_restarts != type(toolset).model_fields["max_restarts"].default
