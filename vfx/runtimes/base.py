"""The contract of a runtime: the box that one rollout's program runs in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Literal

from vfx.settings import Settings

__all__ = ["Placement", "ProgramResult", "Runtime", "SubprocessSettings"]

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

    @property
    def is_ok(self) -> bool:
        """True when the program reported success."""
        return self.exit_code == 0


class SubprocessSettings(Settings):
    """Programs run as processes on this host, each rollout in a scratch folder of its own."""

    type: Literal["subprocess"] = "subprocess"
    max_output_bytes: int = 1_048_576
    """How much of each of stdout and stderr is kept, from the end, in bytes."""


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
        timeout: float | None = None,
    ) -> ProgramResult:
        """Run a program, never through a shell, and wait for its end.

        Args:
            argv: The program and its arguments.
            env: Variables on top of the box's own.
            stdin: What the program reads; None = nothing.
            timeout: Seconds until the program is killed; None = unbounded.

        Raises:
            SandboxError: The program can't be started.
            TimeoutError: It had not ended in time.
        """

    @abstractmethod
    async def read(self, path: str | PurePath) -> bytes:
        """The content of a file; a relative path starts at the working directory.

        Raises:
            SandboxError: It can't be read.
        """

    @abstractmethod
    async def write(self, path: str | PurePath, content: bytes | str) -> None:
        """Write a file, and the folders above it; a relative path starts at the working directory.

        Raises:
            SandboxError: It can't be written.
        """

    def url_for(self, local_url: str) -> str:
        """How a program inside reaches a server of ours that listens at `local_url` on this host."""
        return local_url
