"""The process that isolated hooks run in. Started as a script, and imports nothing of vfx before it is told where.

Frames come on stdin and go out on what was stdout: eight bytes of length, then a pickle. The end of stdin ends it.
"""

import fcntl
import importlib.util
import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, BinaryIO

__all__ = ["LENGTH", "main"]

LENGTH = struct.Struct(">Q")


class _FileModules(MetaPathFinder):
    """Finds the modules that the run loaded by the path of a file, so that classes in them unpickle."""

    def __init__(self) -> None:
        self.paths: Mapping[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.paths.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def main() -> None:
    """Serve calls until whoever started this process closes the pipe, or is gone."""
    requests, answers = _take_pipes()
    # The run decides when this process ends. No SIG_IGN, which the programs that a hook starts would inherit.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _ignore)
    modules = _FileModules()
    sys.meta_path.append(modules)
    leash = _Leash(requests)
    while frame := _read_frame(requests):
        sys.path[:], modules.paths, call = pickle.loads(frame)  # noqa: S301 - from the run that started us
        with leash:
            answer = _answer(call)
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    pass


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep stdin and stdout for frames, and let what hooks print go to stderr."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _read_frame(requests: BinaryIO) -> bytes:
    """One frame; empty at the end."""
    head = _read_exactly(requests, LENGTH.size)
    return _read_exactly(requests, LENGTH.unpack(head)[0]) if head else b""


def _read_exactly(requests: BinaryIO, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        if not (chunk := requests.read(size - len(received))):
            return b""
        received += chunk
    return bytes(received)


class _Leash:
    """Ends this process when the other end of the pipe goes away during a call.

    The kernel does it, by SIGIO's default action: a hook inside C code, such as one long regular expression, lets no
    other Python code run. On systems where that action is another one, the call's end is waited for.
    """

    def __init__(self, requests: BinaryIO) -> None:
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        if sys.platform == "linux":
            fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(requests, fcntl.F_SETFL, fcntl.fcntl(requests, fcntl.F_GETFL) | os.O_ASYNC)

    def __enter__(self) -> None:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        # It may have gone before the signal counted. Nothing is sent to us during a call.
        if self._poll.poll(0):
            os._exit(1)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGIO, signal.SIG_IGN)


def _answer(call: bytes) -> bytes:
    try:
        function, arguments, is_async = pickle.loads(call)  # noqa: S301 - from the run that started us
        if is_async:
            import anyio  # noqa: PLC0415 - most hooks are plain

            value = anyio.run(function, *arguments)
        else:
            value = function(*arguments)
        return _packed(value)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the run has to know it
        return _failure(error)


def _packed(value: Any) -> bytes:
    try:
        return pickle.dumps(("value", value))
    except Exception as error:
        # What pickle says of it differs between Python's versions, and tells nobody what to do.
        raise TypeError(f"its result can't be pickled for the way back: {value!r:.200}") from error


def _failure(error: BaseException) -> bytes:
    lines = "".join(traceback.format_exception(error, limit=-8))
    described: tuple[Any, ...] = (type(error).__name__, str(error), lines)
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)  # noqa: S301 - just made; many exceptions pickle and can't be read back
    except Exception:  # noqa: BLE001 - any of its parts may fail
        packed = None
    return pickle.dumps(("error", packed if isinstance(error, Exception) else None, *described))


if __name__ == "__main__":
    main()
