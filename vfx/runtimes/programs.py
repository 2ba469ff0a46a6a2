"""The programs of a run on this host: started, listened to and ended through one process beside vfx, the keeper."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
from anyio.abc import Process, TaskGroup

from vfx._concurrency import grace
from vfx.errors import SandboxError
from vfx.runtimes import keeper
from vfx.runtimes.base import BackgroundProgram, ProgramResult
from vfx.runtimes.pipes import Tail, read_line, read_some, readable

__all__ = ["INHERITED", "Program", "ProgramSpec", "Programs"]

# A program gets what it needs to find its tools and speak the user's language, not the operator's credentials.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
KEEPER_INHERITED = (*INHERITED, "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
KEEPER_START_S = 10.0
KILL_BOUND_S = 5.0
LAST_OUTPUT_S = 0.3


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """What to start."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdin: bytes | Literal["socket"] | None = None
    """What it reads; "socket": one whose other end is `Program.stdin`. None = nothing."""
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    stop_grace: float = 1.0
    """Seconds between SIGTERM and SIGKILL."""
    max_output_bytes: int = 1 << 20
    """How much of each stream is kept."""

    def encode(self) -> bytes:
        """The message to the program's supervisor; bytes travel as Latin-1, whatever they are.

        Raises:
            UnicodeEncodeError: Something holds a character that the system can't be given.
            ValueError: Something holds a NUL.
        """
        return json.dumps(
            {
                "argv": [_plain(arg) for arg in self.argv],
                "cwd": _plain(str(self.cwd)),
                "env": {_plain(name): _plain(value) for name, value in self.env.items()},
                "memory": self.memory_bytes,
                "cpu_seconds": self.cpu_seconds,
                "grace": self.stop_grace,
            }
        ).encode()


def _plain(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument or variable holds a NUL character, which no program can be given")
    return os.fsencode(text).decode("latin-1")


class Programs:
    """All programs of a run, below one folder. The keeper is started when it is first needed."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._starting = anyio.Lock()
        self._keeper: _Keeper | None = None
        self._keepers: list[_Keeper] = []
        self._live: set[Program] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["Programs"]:
        """Holds the programs; on leaving, all of them are ended and the folder is removed."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield self
            finally:
                self._group = None
                for program in tuple(self._live):
                    program.abandon()
                for started in self._keepers:
                    await started.close()

    async def folder(self) -> Path:
        """The folder of the run, in which scratch folders are made.

        Raises:
            SandboxError: It could not be made.
        """
        return (await self._running_keeper()).folder

    async def start(self, spec: ProgramSpec, forked_by: "Program | None" = None) -> "Program":
        """Start a program.

        Args:
            spec: What to start.
            forked_by: A program with `stdin="socket"` that starts others, see `keeper.supervise`; None = the keeper.

        Raises:
            SandboxError: It can't be started.
        """
        if not spec.argv:
            raise SandboxError("cannot start a program: no program is named")
        name = spec.argv[0]
        try:
            message = spec.encode()
        except ValueError as error:
            raise SandboxError(f"cannot start {name!r}: {error}") from error
        running = await self._running_keeper()
        starter = running.socket if forked_by is None else forked_by.stdin
        if self._group is None or starter is None:
            raise SandboxError(f"cannot start {name!r}: the run is over")
        try:
            program = await _hand_over(spec, starter)
        except OSError as error:
            if forked_by is None:
                self._keeper = None
            raise SandboxError(f"cannot start {name!r}: {error}") from error
        self._live.add(program)
        self._group.start_soon(self._follow, program, name=f"program {name}")
        try:
            await program.begin(message)
        except BaseException:
            program.abandon()
            raise
        return program

    async def _follow(self, program: "Program") -> None:
        try:
            await program.follow()
        finally:
            self._live.discard(program)

    async def _running_keeper(self) -> "_Keeper":
        async with self._starting:
            if self._keeper is None:
                if self._group is None:
                    raise SandboxError("programs run only inside serving()")
                self._keeper = _Keeper()
                self._keepers.append(self._keeper)
                try:
                    await self._keeper.launch()
                except BaseException:
                    self._keeper = None
                    raise
            return self._keeper


class _Keeper:
    """The process beside vfx, see `vfx.runtimes.keeper`."""

    def __init__(self) -> None:
        self.folder = Path()
        self.socket, self._theirs = socket.socketpair()
        self.socket.settimeout(0)
        self._process: Process | None = None

    async def launch(self) -> None:
        env = {name: os.environ[name] for name in KEEPER_INHERITED if name in os.environ}
        argv = [sys.executable, "-I", "-S", keeper.__file__, tempfile.gettempdir()]
        try:
            # Cancelled between the fork and its return, the process would belong to nobody.
            with self._theirs, anyio.CancelScope(shield=True):
                self._process = await anyio.open_process(
                    argv,
                    stdin=self._theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=env,
                    start_new_session=True,
                )
            with anyio.fail_after(KEEPER_START_S):
                report = json.loads(await read_line(self.socket.fileno()))
        except (OSError, ValueError) as error:
            raise SandboxError(f"programs can't be started: {error or type(error).__name__}") from error
        if "error" in report:
            raise SandboxError(f"no scratch folder: {report['error']}")
        self.folder = Path(report["folder"])

    async def close(self) -> None:
        """Let it end all that runs below it, and end."""
        self.socket.close()
        if self._process is None:
            return
        with grace(2 * KILL_BOUND_S, "programs to end", is_release=True):
            await self._process.wait()
        # Left only by a keeper that was killed.
        if self.folder.name and self.folder.exists():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(keeper.remove_folder, str(self.folder))


async def _hand_over(spec: ProgramSpec, starter: socket.socket) -> "Program":
    """Have a program's supervisor forked by the process at the other end of `starter`.

    Raises:
        OSError: No descriptors are left, or that process is not.
    """
    with ExitStack() as theirs:
        program = Program(spec)
        try:
            descriptors = program.open(theirs)
            while True:
                try:
                    socket.send_fds(starter, [b"+"], descriptors)
                except BlockingIOError:
                    await anyio.wait_writable(starter)
                else:
                    return program
        except BaseException:
            program.close()
            raise


class Program(BackgroundProgram):
    """One program, by its supervisor's reports and its output."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._spec = spec
        self._ours = ExitStack()
        self._control: socket.socket | None = None
        self.stdin: socket.socket | None = None
        """Our end of its stdin, which does not block; None when that is no socket, and after the program's end."""
        self._stdout = Tail(spec.max_output_bytes)
        self._stderr = Tail(spec.max_output_bytes)
        self._pid = 0
        self._refusal: str | None = None
        self._exit_code: int | None = None
        self._exceeded: Literal["memory", "cpu"] | None = None
        self._answered = anyio.Event()
        self._exited = anyio.Event()
        self._ended = anyio.Event()

    def open(self, theirs: ExitStack) -> list[int]:
        """Open the channels; returns the program's ends, which `theirs` closes."""
        control, other = socket.socketpair()
        self._control = self._ours.enter_context(control)
        control.settimeout(0)
        theirs.enter_context(other)
        descriptors = [other.fileno(), self._open_stdin(theirs)]
        for tail in (self._stdout, self._stderr):
            reader, writer = os.pipe()
            self._ours.callback(os.close, reader)
            theirs.callback(os.close, writer)
            os.set_blocking(reader, False)
            tail.descriptor = reader
            descriptors.append(writer)
        return descriptors

    def _open_stdin(self, theirs: ExitStack) -> int:
        if self._spec.stdin != "socket":
            return readable(self._spec.stdin, theirs)
        ours, other = socket.socketpair()
        self.stdin = self._ours.enter_context(ours)
        ours.settimeout(0)
        return theirs.enter_context(other).fileno()

    def close(self) -> None:
        """Close our ends of the channels."""
        self._ours.close()
        self._control = self.stdin = None
        self._answered.set()
        self._exited.set()
        self._ended.set()

    def abandon(self) -> None:
        """Have it killed at once."""
        if self._control is not None:
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)

    async def begin(self, message: bytes) -> None:
        """Say what to start, and wait until it has been.

        Raises:
            SandboxError: It could not be.
        """
        data = memoryview(len(message).to_bytes(keeper.SPEC_LENGTH_BYTES, "big") + message)
        with suppress(OSError):
            while data and self._control is not None:
                try:
                    data = data[self._control.send(data) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._control)
        await self._answered.wait()
        if not self._pid:
            raise SandboxError(f"cannot start {self._spec.argv[0]!r}: {self._refusal or 'its supervisor was killed'}")

    async def follow(self) -> None:
        """Take in reports and output until nothing of the program is left."""
        # A cancelled rollout still has to see its programs end.
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._stdout.collect, name="stdout")
                    group.start_soon(self._stderr.collect, name="stderr")
                    await self._listen()
                    # Nobody is left who could hold the pipes, unless they were passed to a process of someone else.
                    with anyio.move_on_after(LAST_OUTPUT_S):
                        await self._stdout.ended.wait()
                        await self._stderr.ended.wait()
                    group.cancel_scope.cancel()
            finally:
                self.close()

    async def _listen(self) -> None:
        rest = b""
        assert self._control is not None  # noqa: S101 - open until `follow` ends
        while piece := await read_some(self._control.fileno()):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, report: Any) -> None:
        self._pid = report.get("pid", self._pid)
        self._refusal = report.get("error", self._refusal)
        self._exit_code = report.get("exited", self._exit_code)
        self._exceeded = report.get("cause", self._exceeded)
        self._answered.set()
        if self._exit_code is not None:
            self._exited.set()

    @property
    def pid(self) -> int:
        """See `BackgroundProgram.pid`."""
        return self._pid

    @property
    def output(self) -> str:
        """See `BackgroundProgram.output`."""
        return self._stdout.text + self._stderr.text

    @property
    def stderr(self) -> str:
        """The last part of what it has written there so far."""
        return self._stderr.text

    async def ended(self) -> None:
        """Wait for its end, however it comes."""
        await self._ended.wait()

    async def exited(self) -> None:
        """Wait for the end of the program itself; what it has started may still run."""
        await self._exited.wait()

    async def first_line(self) -> str | None:
        """Wait for the first line on its stdout, without its end; None when stdout ends before."""
        return await self._stdout.first_line()

    @property
    def is_running(self) -> bool:
        """See `BackgroundProgram.is_running`."""
        return not self._ended.is_set()

    async def wait(self) -> ProgramResult:
        """See `BackgroundProgram.wait`."""
        await self._ended.wait()
        if self._exit_code is None:
            raise SandboxError(f"{self._spec.argv[0]!r}: its supervisor was killed")
        out, err = self._stdout, self._stderr
        return ProgramResult(self._exit_code, out.text, err.text, out.is_cut or err.is_cut, self._exceeded)

    async def stop(self) -> None:
        """See `BackgroundProgram.stop`."""
        if self._control is None:
            return
        with suppress(OSError):
            self._control.send(keeper.GRACEFUL)
        with grace(self._spec.stop_grace + KILL_BOUND_S, f"{self._spec.argv[0]} to end"):
            await self._ended.wait()
        self.abandon()
