"""The processes that a run's tool servers are forked from: one for all, and one more for each toolset of rollouts."""

import os
import sys

import anyio

from vfx.authoring.toolset import Toolset
from vfx.errors import ConfigError, RunError, SandboxError
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Program, Programs
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.spec import ServerSpec

__all__ = ["ToolHosts", "describe_end"]

HOST = "tool host"
SERVER = "tool server"
END_NOTICE_S = 2.0
START_S = 60.0
READY = "ready"


class ToolHosts:
    """Started as they are needed, and again when one was killed; they end with the programs of the run."""

    def __init__(self, programs: Programs) -> None:
        self._runtime = SubprocessRuntime(SubprocessSettings(stop_grace=0.0), programs)
        self._starting = anyio.Lock()
        self._root: Program | None = None
        self._of_class: dict[type[Toolset], Program | None] = {}

    async def root(self) -> Program:
        """The one that has imported what every server needs.

        Raises:
            RunError: It can't be started.
        """
        async with self._starting:
            return await self._running_root()

    async def fork(
        self, spec: ServerSpec, toolset: Toolset, box: SubprocessRuntime, *, is_one_of_many: bool
    ) -> Program:
        """Have a tool server forked, which is not ready yet.

        Args:
            spec: What it is told.
            toolset: What it serves.
            box: Where it works.
            is_one_of_many: Whether it pays to import the toolset's module before.

        Raises:
            SandboxError: It can't be.
            RunError: There is no process to fork it from.
        """
        variables = {name: os.environ[name] for name in toolset.env if name in os.environ}
        while True:
            host = await (self._of(toolset) if is_one_of_many else self.root())
            try:
                return await box.start_background([SERVER], env=variables, stdin=spec.encode(), forked_by=host)
            except SandboxError:
                # One that is being killed is not known to have ended yet.
                with anyio.move_on_after(END_NOTICE_S):
                    await host.ended()
                if host.is_running:
                    raise

    async def _of(self, toolset: Toolset) -> Program:
        """The host that has imported the module of the toolset, too, where that can be done before a fork."""
        owner = type(toolset)
        async with self._starting:
            root = await self._running_root()
            known = self._of_class.get(owner)
            if owner not in self._of_class or (known is not None and not known.is_running):
                self._of_class[owner] = await self._start_for(toolset, root)
            return self._of_class[owner] or root

    async def _running_root(self) -> Program:
        if self._root is None or not self._root.is_running:
            argv = [sys.executable, "-P", "-m", "vfx.tools.host"]
            # vfx may be imported from where only this process looks; servers get the variables of their own boxes.
            env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            try:
                self._root = await self._runtime.start_background(argv, env=env, stdin="socket")
            except SandboxError as error:
                raise RunError(f"tool servers can't be started: {error}") from error
            if (told := await _first_line(self._root)) != READY:
                raise RunError(f"tool servers can't be started: {told}")
        return self._root

    async def _start_for(self, toolset: Toolset, root: Program) -> Program | None:
        try:
            spec = ServerSpec.of("", toolset, key="")
            program = await self._runtime.start_background([HOST], stdin="socket", forked_by=root)
        except (ConfigError, SandboxError):
            return None
        data = memoryview(spec.encode() + b"\n")
        while data and program.stdin is not None:
            try:
                data = data[program.stdin.send(data) :]
            except BlockingIOError:
                await anyio.wait_writable(program.stdin)
            except OSError:
                break
        return program if await _first_line(program) == READY else None


async def describe_end(program: Program) -> str:
    """How a program ended, in words."""
    try:
        code = (await program.wait()).exit_code
    except SandboxError:
        return "killed together with its supervisor"
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


async def _first_line(program: Program) -> str:
    with anyio.move_on_after(START_S):
        line = await program.first_line()
        if line is not None:
            return line
        return f"{await describe_end(program)}: {program.stderr.strip()[-2000:]}"
    program.abandon()
    return f"not ready after {START_S:g} s"
