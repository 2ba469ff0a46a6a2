"""A pseudo-terminal with a command on it, as a person's terminal is to the command."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

__all__ = ["Session", "on_terminal"]

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


class Session:
    """A command on a terminal of its own, which controls it."""

    def __init__(self, process: "subprocess.Popen[bytes]", ours: int, theirs: int) -> None:
        self.process = process
        self.output = b""
        """Everything that the terminal was sent."""
        self._ours, self._theirs = ours, theirs
        self.before = self.settings()

    def settings(self) -> list[Any]:
        """Of the terminal, as `stty` shows them, and whether those who share it must not wait for it."""
        return [*termios.tcgetattr(self._theirs), fcntl.fcntl(self._theirs, fcntl.F_GETFL) & os.O_NONBLOCK]

    def type(self, keys: bytes) -> None:
        """Press keys; what they do is up to the terminal's settings."""
        os.write(self._ours, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the terminal's size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def is_cursor_visible(self) -> bool:
        return self.output.rfind(SHOW_CURSOR) >= self.output.rfind(HIDE_CURSOR)

    async def until(self, text: str, *, after: int = 0) -> None:
        """Read until the terminal has been sent `text`, past the first `after` bytes."""
        with anyio.fail_after(20):
            while text.encode() not in self.output[after:]:
                if not await self._read():
                    raise AssertionError(f"{text!r} is not in {self.output.decode(errors='replace')}")

    async def end(self) -> int:
        """Read to the command's end; returns its exit code."""
        with anyio.fail_after(20):
            while self.process.poll() is None:
                await self._read()
            while await self._read():
                pass
        return self.process.returncode

    async def _read(self) -> bool:
        with anyio.move_on_after(0.05):
            await anyio.wait_readable(self._ours)
        try:
            piece = os.read(self._ours, 1 << 16)
        except BlockingIOError:
            return self.process.poll() is None
        except OSError:
            return False
        self.output += piece
        return bool(piece)


@contextmanager
def on_terminal(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24
) -> Generator[Session]:
    """Start `argv` with all three streams on a new terminal; killed at the end if it still runs."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(argv, cwd=cwd, env=env, preexec_fn=partial(os.login_tty, os.dup(theirs)))
    try:
        yield Session(process, ours, theirs)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
