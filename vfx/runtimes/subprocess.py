"""Programs as processes on this host: a process group per program, a scratch folder per rollout."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import ClassVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import Process

from vfx._concurrency import grace
from vfx.errors import SandboxError
from vfx.runtimes.base import Placement, ProgramResult, Runtime, SubprocessSettings

__all__ = ["SubprocessRuntime"]

# A program gets what it needs to find its tools and speak the user's language, not the operator's credentials.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
KILL_GRACE_S = 5.0


class SubprocessRuntime(Runtime):
    """Runs programs beside vfx, with their own scratch folder as working directory and HOME."""

    placement: ClassVar[Placement] = "host"

    def __init__(self, settings: SubprocessSettings) -> None:
        self._settings = settings
        self._scratch: Path | None = None
        self._running: set[Process] = set()

    async def start(self) -> None:
        """Nothing to do: the scratch folder is made when something first needs it."""

    async def stop(self) -> None:
        """Kill what still runs and remove the scratch folder."""
        with grace(KILL_GRACE_S, "programs to end"):
            for process in self._running:
                _kill_group(process)
            for process in tuple(self._running):
                await process.wait()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(scratch, ignore_errors=True))

    def _folder(self) -> Path:
        if self._scratch is None:
            try:
                self._scratch = Path(tempfile.mkdtemp(prefix="vfx-"))
            except OSError as error:
                raise SandboxError(f"no scratch folder: {error}") from error
        return self._scratch

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """See `Runtime.run`."""
        folder = self._folder()
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment = {**inherited, "HOME": str(folder), "TMPDIR": str(folder), **(env or {})}
        process = await _spawn(argv, folder, environment, has_stdin=stdin is not None)
        self._running.add(process)
        try:
            with anyio.fail_after(timeout):
                return await self._communicate(process, stdin.encode() if isinstance(stdin, str) else stdin)
        finally:
            _kill_group(process)
            with grace(KILL_GRACE_S, f"{argv[0]} to end"):
                await process.wait()
                await process.aclose()
            self._running.discard(process)

    async def _communicate(self, process: Process, stdin: bytes | None) -> ProgramResult:
        limit = self._settings.max_output_bytes
        out, err = _Tail(limit), _Tail(limit)
        code = 0
        async with anyio.create_task_group() as group:
            if process.stdout:
                group.start_soon(out.collect, process.stdout, name="stdout")
            if process.stderr:
                group.start_soon(err.collect, process.stderr, name="stderr")
            if process.stdin and stdin is not None:
                # A program may exit without reading its input.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await process.stdin.send(stdin)
                await process.stdin.aclose()
            code = await process.wait()
            # What the program wrote is in the pipes by now; a child that keeps them open is not waited for.
            await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(0.2):
                await out.ended.wait()
                await err.ended.wait()
            group.cancel_scope.cancel()
        return ProgramResult(code, out.text, err.text, out.is_cut or err.is_cut)

    async def read(self, path: str | PurePath) -> bytes:
        """See `Runtime.read`."""
        try:
            return await anyio.Path(self._folder() / path).read_bytes()
        except OSError as error:
            raise SandboxError(f"cannot read {path}: {error.strerror}") from error

    async def write(self, path: str | PurePath, content: bytes | str) -> None:
        """See `Runtime.write`."""
        target = anyio.Path(self._folder() / path)
        try:
            await target.parent.mkdir(parents=True, exist_ok=True)
            await target.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise SandboxError(f"cannot write {path}: {error.strerror}") from error


async def _spawn(argv: Sequence[str], folder: Path, environment: Mapping[str, str], *, has_stdin: bool) -> Process:
    # Cancelled between the fork and its return, it would leave the program's children to nobody.
    process: Process | None = None
    try:
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [os.fspath(arg) for arg in argv],
                stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot start {argv[0]!r}: {error}") from error
    assert process is not None  # noqa: S101 - a shielded scope swallows nothing
    return process


class _Tail:
    """The last `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.is_cut = False
        self.ended = anyio.Event()

    async def collect(self, stream: AsyncIterable[bytes]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for piece in stream:
                self._kept += piece
                if len(self._kept) > 2 * self._limit:
                    self._trim()
        self._trim()
        self.ended.set()

    def _trim(self) -> None:
        excess = len(self._kept) - self._limit
        if excess > 0:
            self.is_cut = True
            del self._kept[:excess]

    @property
    def text(self) -> str:
        self._trim()
        return self._kept.decode("utf-8", "replace")


def _kill_group(process: Process) -> None:
    # The group outlives its leader as long as a child is in it; the number is not reused before that.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
