"""What a program needs before the first rollout: that it is there, its setup, its version."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from vfx.errors import Mistake, RunError, SandboxError
from vfx.harnesses.placeholders import fill
from vfx.runtimes.base import ProgramResult, SubprocessSettings
from vfx.runtimes.keeper import remove_folder
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

__all__ = ["Preparation", "missing_program", "preparing", "resolved"]

LOCK_POLL_S = 0.1
TAIL_CHARS = 2000
MAX_VERSION_CHARS = 200


def resolved(program: str) -> str:
    """The program as it is found from any folder: a relative path counts from where vfx was started."""
    return str(Path(program).absolute()) if "/" in program else program


def missing_program(program: str, where: str, variables: Mapping[str, str], *, hint: str) -> list[Mistake]:
    """What to say when a program can't be started.

    Args:
        program: As argv names it.
        where: The option.
        variables: What it gets in place of the environment of vfx.
        hint: What to do when it isn't on PATH.
    """
    path = variables.get("PATH") or os.environ.get("PATH", os.defpath)
    if "{" in program + path:  # Made by the setup, perhaps.
        return []
    if shutil.which(resolved(program), path=path):
        return []
    if "/" not in program:
        return [Mistake(f"there is no program {program!r} on PATH", where, hint)]
    what = "can't be executed" if Path(program).is_file() else "isn't there"
    return [Mistake(f"the program {resolved(program)!r} {what}", where)]


class Preparation:
    """Runs commands before there are rollouts; one that fails ends the run."""

    def __init__(self, settings: SubprocessSettings, programs: Programs) -> None:
        self._settings = settings
        self._programs = programs

    async def set_up(self, commands: Sequence[Sequence[str]]) -> Path:
        """Run the commands, unless an earlier run has; returns the folder that they filled.

        Raises:
            RunError: One of them failed; the next run starts from the first again.
        """
        # It finds the user's data folder and little else, but its module is not small.
        from vfx.clients.local_model import data_folder  # noqa: PLC0415

        digest = hashlib.sha256(json.dumps(commands).encode()).hexdigest()[:16]
        folder = data_folder() / "setup" / digest
        done = folder / ".vfx-done"
        await anyio.Path(folder.parent).mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{digest}.lock").open("w") as lock:
            await _lock(lock.fileno())
            if not done.exists():
                await anyio.to_thread.run_sync(remove_folder, str(folder))
                folder.mkdir()
                for command in commands:
                    await self._run([fill(arg, {"setup_dir": str(folder)}) for arg in command], "setup", {}, folder)
                done.touch()
        return folder

    async def first_line(self, argv: Sequence[str], variables: Mapping[str, str]) -> str:
        """What a command writes first, given `variables`.

        Raises:
            RunError: It failed.
        """
        result = await self._run(argv, "version", variables)
        lines = (result.stdout.strip() or result.stderr.strip()).splitlines()
        return lines[0][:MAX_VERSION_CHARS] if lines else ""

    async def _run(
        self, argv: Sequence[str], what: str, variables: Mapping[str, str], folder: Path | None = None
    ) -> ProgramResult:
        runtime = SubprocessRuntime(self._settings, self._programs)
        home = {} if folder is None else {"HOME": str(folder)}
        try:
            await runtime.start()
            result = await runtime.run([resolved(argv[0]), *argv[1:]], env={**home, **variables}, cwd=folder)
        except SandboxError as error:
            raise RunError(f"harness {what}: {error}") from error
        finally:
            await runtime.stop()
        if not result.is_ok:
            tail = (result.stderr or result.stdout).strip()[-TAIL_CHARS:]
            raise RunError(f"harness {what}: {' '.join(argv)[:200]}: exit code {result.exit_code}: {tail}")
        return result


@asynccontextmanager
async def preparing(settings: SubprocessSettings, seconds: float | None) -> AsyncGenerator[Preparation]:
    """Holds what commands before the first rollout need.

    Raises:
        RunError: They took longer than `seconds`.
    """
    async with Programs().serving() as programs:
        with anyio.move_on_after(seconds) as deadline:
            yield Preparation(settings, programs)
    if deadline.cancelled_caught:
        raise RunError(f"the harness's setup took longer than {seconds:g} s (--harness.setup-timeout)")


async def _lock(descriptor: int) -> None:
    """Wait for another run that makes the same setup; the lock goes with the descriptor."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await anyio.sleep(LOCK_POLL_S)
        else:
            return
