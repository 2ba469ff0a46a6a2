"""The contract of a runtime: the box that one rollout's program runs in."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Literal

from pydantic import Field

from vfx.errors import Mistake
from vfx.settings import Settings

__all__ = ["BackgroundProgram", "Placement", "ProgramResult", "Runtime", "SubprocessSettings"]

Placement = Literal["host", "sandbox", "remote"]


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended."""

    exit_code: int
    """As the system tells it; negative: the signal that ended it."""
    stdout: str = ""
    """The last part of what it wrote; undecodable bytes are U+FFFD."""
    stderr: str = ""
    is_cut: bool = False
    """True when the beginning of stdout or stderr was dropped."""
    exceeded: Literal["memory", "cpu"] | None = None
    """The limit of the box for which it was killed; None = it was not."""

    @property
    def is_ok(self) -> bool:
        """True when the program reported success."""
        return self.exit_code == 0


class SubprocessSettings(Settings):
    """Programs run as processes on this host, each rollout in a scratch folder of its own."""

    type: Literal["subprocess"] = "subprocess"
    max_output_bytes: int = 1_048_576
    """How much of each of stdout and stderr is kept, from the end, in bytes."""
    env: tuple[str, ...] = ()
    """Names of variables that programs get from the environment of vfx, beside PATH, LANG, TZ and their like."""
    variables: dict[str, str] = Field(default_factory=dict[str, str])
    """More variables, with their values. They are saved with the run: pass secrets by name, through `env`."""
    memory: float | None = Field(default=None, gt=0)
    """Gigabytes (10^9 bytes) that a program and all its children may hold together; None = unbounded. Linux only."""
    cpu_seconds: float | None = Field(default=None, gt=0)
    """CPU time that a program and all its children may use together, in seconds; None = unbounded. Linux only."""
    stop_grace: float = Field(default=1.0, ge=0)
    """Seconds between SIGTERM and SIGKILL for a program that has to end."""

    def mistakes(self) -> list[Mistake]:
        """What this system can't do, known before anything is started."""
        asked = {"memory": self.memory, "cpu-seconds": self.cpu_seconds}
        return [
            Mistake("only Linux can tell what a program and its children use", f"--harness.runtime.{name} {value:g}")
            for name, value in asked.items()
            if value is not None and sys.platform != "linux"
        ]


class BackgroundProgram(ABC):
    """A program that was started and not waited for. It ends with its runtime at the latest."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Its process, as numbered inside the box."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The last part of what it has written so far, stdout before stderr."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """False once it and all its children have ended."""

    @abstractmethod
    async def wait(self) -> ProgramResult:
        """Wait for its end.

        Raises:
            SandboxError: How it ended can't be known.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End it and all its children. Bounded, and safe to call twice."""


class Runtime(ABC):
    """One box for one rollout. Whoever enters it owns it; leaving stops what runs inside."""

    placement: ClassVar[Placement]
    """`host`: shares our loopback; `sandbox`: on this host, but not on its loopback; `remote`: another host."""

    @abstractmethod
    async def start(self) -> None:
        """Bring the box up.

        Raises:
            SandboxError: It can't be.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Take the box down, and leave no process of it behind. Bounded, and safe to call twice."""

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        cwd: str | PurePath | None = None,
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program, never through a shell, and wait for its end. Children that outlive it are ended with it.

        Args:
            argv: The program and its arguments.
            env: Variables on top of the box's own.
            stdin: What the program reads; None = nothing.
            cwd: The folder it starts in, relative to the working directory; None = that one.
            timeout: Seconds until the program is ended; None = unbounded.

        Raises:
            SandboxError: The program can't be started.
            TimeoutError: It had not ended in time.
        """

    @abstractmethod
    async def start_background(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | PurePath | None = None
    ) -> BackgroundProgram:
        """Start a program and go on; it runs until it ends, is stopped, or the runtime is. Arguments as for `run`.

        Raises:
            SandboxError: The program can't be started.
        """

    @abstractmethod
    async def workdir(self) -> PurePath:
        """The working directory, absolute, as programs inside see it.

        Raises:
            SandboxError: There is none.
        """

    @abstractmethod
    async def read(self, path: str | PurePath) -> bytes:
        """The content of a file; a relative path starts at the working directory.

        Raises:
            SandboxError: It can't be read.
        """

    @abstractmethod
    async def write(self, path: str | PurePath, content: bytes | str, *, mode: int | None = None) -> None:
        """Write a file, and the folders above it; a relative path starts at the working directory.

        Args:
            path: Where.
            content: Text is written as UTF-8.
            mode: Its permissions, before it holds anything; None = the box's usual ones.

        Raises:
            SandboxError: It can't be written.
        """

    def url_for(self, local_url: str) -> str:
        """How a program inside reaches a server of ours that listens at `local_url` on this host."""
        return local_url
