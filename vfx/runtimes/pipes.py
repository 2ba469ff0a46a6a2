"""The ends of pipes and sockets that programs write to and read from."""

import os
import tempfile
from contextlib import ExitStack

import anyio

__all__ = ["Tail", "read_line", "read_some", "readable"]

READ_BYTES = 1 << 16


class Tail:
    """The last `limit` bytes of a pipe."""

    def __init__(self, limit: int) -> None:
        self.descriptor = -1
        """The pipe, which does not block."""
        self.is_cut = False
        """True when its beginning was dropped."""
        self.ended = anyio.Event()
        self._news = anyio.Event()
        self._limit = limit
        self._kept = bytearray()

    async def collect(self) -> None:
        """Read until the pipe's end."""
        while piece := await read_some(self.descriptor):
            self._kept += piece
            if len(self._kept) > 2 * self._limit:
                self._trim()
            self._news.set()
            self._news = anyio.Event()
        self._trim()
        self.ended.set()
        self._news.set()

    async def first_line(self) -> str | None:
        """Wait for the first line of what is kept, without its end; None when the pipe ends before."""
        while b"\n" not in self._kept:
            if self.ended.is_set():
                return None
            await self._news.wait()
        return self._kept.partition(b"\n")[0].decode("utf-8", "replace")

    def _trim(self) -> None:
        excess = len(self._kept) - self._limit
        if excess > 0:
            self.is_cut = True
            del self._kept[:excess]

    @property
    def text(self) -> str:
        """What is kept; undecodable bytes are U+FFFD."""
        self._trim()
        return self._kept.decode("utf-8", "replace")


async def read_some(descriptor: int) -> bytes:
    """The next bytes; empty at the end."""
    while True:
        await anyio.wait_readable(descriptor)
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            continue
        except OSError:
            return b""


async def read_line(descriptor: int) -> bytes:
    """The first line.

    Raises:
        ConnectionResetError: The other end closed before it.
    """
    line = b""
    while not line.endswith(b"\n"):
        piece = await read_some(descriptor)
        if not piece:
            raise ConnectionResetError("the process that starts them has ended")
        line += piece
    return line


def readable(content: bytes | None, stack: ExitStack) -> int:
    """A descriptor to read `content` from: a file, so that nobody has to feed a program that reads slowly or never."""
    if content is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        return descriptor
    file = stack.enter_context(tempfile.TemporaryFile(prefix="vfx-stdin-", buffering=0))  # noqa: SIM115
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    file.seek(0)
    return file.fileno()
