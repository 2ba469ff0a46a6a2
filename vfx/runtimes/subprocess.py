"""Programs as processes on this host, each rollout in a scratch folder of its own."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import ClassVar, Literal

import anyio
import anyio.to_thread

from vfx.errors import SandboxError
from vfx.runtimes.base import Placement, ProgramResult, Runtime, SubprocessSettings
from vfx.runtimes.keeper import remove_folder
from vfx.runtimes.programs import INHERITED, Program, Programs, ProgramSpec

__all__ = ["SubprocessRuntime"]


class SubprocessRuntime(Runtime):
    """Runs programs beside vfx, with their own scratch folder as working directory, HOME and TMPDIR.

    On Linux nothing of a program outlives it. Elsewhere that holds for what stays in its process group.
    """

    placement: ClassVar[Placement] = "host"

    def __init__(self, settings: SubprocessSettings, programs: Programs) -> None:
        """See the class.

        Args:
            settings: The user's.
            programs: Those of the run, serving as long as this runtime is used.
        """
        self._settings = settings
        self._programs = programs
        self._scratch: Path | None = None
        self._running: set[Program] = set()

    async def start(self) -> None:
        """Check what was asked for; the scratch folder is made when something first needs it."""
        if mistakes := self._settings.mistakes():
            raise SandboxError(str(mistakes[0]))

    async def stop(self) -> None:
        """End what still runs and remove the scratch folder."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for program in self._running:
                    group.start_soon(program.stop, name="stop program")
        self._running.clear()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_folder, str(scratch))

    async def workdir(self) -> Path:
        """See `Runtime.workdir`."""
        if self._scratch is None:
            folder = await self._programs.folder()
            # Another task may have been here while this one waited.
            if self._scratch is None:
                scratch = folder / os.urandom(8).hex()
                try:
                    scratch.mkdir(0o700)
                except OSError as error:
                    raise SandboxError(f"no scratch folder: {error}") from error
                self._scratch = scratch
        return self._scratch

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        cwd: str | PurePath | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """See `Runtime.run`."""
        with anyio.fail_after(timeout):
            program = await self._start(argv, env, cwd, stdin.encode() if isinstance(stdin, str) else stdin)
            try:
                return await program.wait()
            finally:
                await program.stop()
                self._running.discard(program)

    async def start_background(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        stdin: bytes | Literal["socket"] | None = None,
        forked_by: Program | None = None,
    ) -> Program:
        """See `Runtime.start_background`.

        Args:
            argv: The program and its arguments.
            env: Variables on top of the box's own.
            cwd: The folder it starts in.
            stdin: See `ProgramSpec.stdin`.
            forked_by: See `Programs.start`.
        """
        return await self._start(argv, env, cwd, stdin, forked_by)

    async def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | PurePath | None,
        stdin: bytes | Literal["socket"] | None,
        forked_by: Program | None = None,
    ) -> Program:
        settings, folder = self._settings, await self.workdir()
        inherited = {name: os.environ[name] for name in (*INHERITED, *settings.env) if name in os.environ}
        own = {"HOME": str(folder), "TMPDIR": str(folder)}
        spec = ProgramSpec(
            argv=argv,
            cwd=folder if cwd is None else folder / cwd,
            env={**inherited, **own, **settings.variables, **(env or {})},
            stdin=stdin,
            memory_bytes=None if settings.memory is None else int(settings.memory * 1e9),
            cpu_seconds=settings.cpu_seconds,
            stop_grace=settings.stop_grace,
            max_output_bytes=settings.max_output_bytes,
        )
        program = await self._programs.start(spec, forked_by)
        self._running.add(program)
        return program

    async def read(self, path: str | PurePath) -> bytes:
        """See `Runtime.read`."""
        try:
            return await anyio.Path(await self.workdir() / path).read_bytes()
        except OSError as error:
            raise SandboxError(f"cannot read {path}: {error.strerror}") from error

    async def write(self, path: str | PurePath, content: bytes | str, *, mode: int | None = None) -> None:
        """See `Runtime.write`."""
        target = anyio.Path(await self.workdir() / path)
        try:
            await target.parent.mkdir(parents=True, exist_ok=True)
            if mode is not None:
                await target.touch(mode)
                await target.chmod(mode)
            await target.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise SandboxError(f"cannot write {path}: {error.strerror}") from error
