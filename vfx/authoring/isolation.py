"""Processes for hooks with `isolate=True`: reused, at most one per CPU, killed when their caller stops waiting."""

import math
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from vfx._concurrency import grace
from vfx.authoring import hook_worker
from vfx.authoring.loading import file_modules

__all__ = ["HookProcessError", "HookProcesses"]

END_GRACE_S = 5.0


class HookProcessError(Exception):
    """The process of an isolated hook died, or what it gave can't be carried between processes."""


class _RemoteError(Exception):
    """Where an isolated hook failed, as text: its frames stay in the other process."""

    def __str__(self) -> str:
        return f"in the hook's process:\n{self.args[0]}"


class HookProcesses:
    """A pool of workers, empty until the first isolated hook is called."""

    def __init__(self, max_processes: int | None = None) -> None:
        self._places = anyio.CapacityLimiter(max_processes or os.cpu_count() or 1)
        self._idle: list[_Worker] = []
        self._is_serving = False

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Calls are possible inside; no worker is left afterwards."""
        self._is_serving = True
        try:
            yield
        finally:
            self._is_serving = False
            # Those in use belong to calls, which have ended by now.
            while self._idle:
                await self._idle.pop().kill()

    async def call(
        self, function: Callable[..., Any], arguments: Sequence[Any], *, is_async: bool = False, in_use: bool = False
    ) -> Any:
        """Call `function` in a worker; when the caller is cancelled, the worker is killed.

        Args:
            function: At the top level of a module, or a method of a class there.
            arguments: Copies of them reach the function.
            is_async: Whether it is a coroutine function.
            in_use: Whether others may change the arguments meanwhile.

        Raises:
            HookProcessError: The worker died, or arguments or result can't be pickled.
            Exception: What the function raised.
        """
        if not self._is_serving:
            raise RuntimeError("isolated hooks run only inside serving()")
        call = (function, list(arguments), is_async)
        frame = _pack(call) if in_use else await anyio.to_thread.run_sync(_pack, call)
        async with self._places:
            worker = await self._take_worker()
            try:
                answer = await worker.ask(frame)
            except BaseException:
                await worker.kill()
                raise
            self._idle.append(worker)
        return _read_answer(answer)

    async def _take_worker(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await worker.kill()
        return await _Worker.start()


class _Worker:
    """One process and its pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a worker has pipes")
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    @classmethod
    async def start(cls) -> "_Worker":
        command = [sys.executable, "-P", str(Path(hook_worker.__file__))]
        # A cancellation while the process is made would leave one that nobody knows.
        worker: _Worker
        with anyio.CancelScope(shield=True):
            worker = cls(await anyio.open_process(command, stdin=subprocess.PIPE, stderr=None))
        return worker  # pyright: ignore[reportPossiblyUnboundVariable] - a shield alone swallows nothing

    @property
    def is_alive(self) -> bool:
        """False when it has ended on its own account: the system may kill what uses much memory."""
        return self._process.returncode is None

    async def ask(self, frame: bytes) -> bytes:
        try:
            await self._stdin.send(hook_worker.LENGTH.pack(len(frame)) + frame)
            head = await self._stdout.receive_exactly(hook_worker.LENGTH.size)
            return await self._stdout.receive_exactly(hook_worker.LENGTH.unpack(head)[0])
        except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            code = math.nan
            with anyio.move_on_after(END_GRACE_S):
                code = await self._process.wait()
            ended = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
            raise HookProcessError(f"its process ended before it had answered ({ended})") from None

    async def kill(self) -> None:
        with grace(END_GRACE_S, "a hook's process to end"):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            await self._process.aclose()


def _pack(call: tuple[Callable[..., Any], list[Any], bool]) -> bytes:
    try:
        packed = pickle.dumps(call)
    except Exception as error:
        raise HookProcessError(f"its arguments can't be sent to a process: {type(error).__name__}: {error}") from error
    return pickle.dumps((list(sys.path), file_modules(), packed))


def _read_answer(answer: bytes) -> Any:
    try:
        kind, content, *described = pickle.loads(answer)  # noqa: S301 - from a process of ours
        error = pickle.loads(content) if kind == "error" and content else None  # noqa: S301 - likewise
    except Exception as failure:
        raise HookProcessError(f"its result can't be read: {type(failure).__name__}: {failure}") from failure
    if kind == "value":
        return content
    name, text, lines = described
    if error is None:
        # A class of the same name, so that it is reported alike.
        error = type(name, (Exception,), {})(text)
    raise error from _RemoteError(lines)
