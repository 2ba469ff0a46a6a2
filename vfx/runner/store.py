"""The folder of one run. Only whole lines ever stand in its files, whatever happens while they are written."""

import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from vfx.errors import ConfigError, Mistake, RunError
from vfx.runner.config import EvalConfig
from vfx.runner.lines import encode_trace
from vfx.trace.record import Trace

__all__ = [
    "ATTEMPTS",
    "CONFIG",
    "LOG",
    "SUMMARY",
    "SYSTEM_PROMPT",
    "TORN",
    "TRACES",
    "RunStore",
    "append_whole",
    "replace_file",
    "run_folder",
]

TRACES = "traces.jsonl"
TORN = "traces.torn"
ATTEMPTS = "attempts.jsonl"
CONFIG = "config.toml"
SUMMARY = "summary.json"
LOG = "run.log"
SYSTEM_PROMPT = "system_prompt.txt"
"""What stood in the file that `--taskset.system-prompt-file` names when the run began."""
LOCK = ".lock"
RUN_FILES = frozenset({TRACES, TORN, ATTEMPTS, CONFIG, SUMMARY, LOG, SYSTEM_PROMPT, LOCK})
NEW = ".new"
"""Ends the name of a file that is written to take the place of another."""

MAX_PART_BYTES = 100


def run_folder(config: EvalConfig, model: str) -> Path:
    """Where a new run of `config` is kept: `outputs/<env>--<model>--<harness>/<time>-<8 hex>`, or its `--name`."""
    parts = (_own_name(config.taskset.id), model, _own_name(config.harness.id or "chat"))
    name = config.name or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    return config.output_dir / "--".join(map(_safe_part, parts)) / _safe_part(name)


def _own_name(reference: str) -> str:
    """`.` and `..` say nothing; the folder that they lead to does."""
    return Path(reference).resolve().name if reference.rstrip("/") in (".", "..") else reference


def _safe_part(name: str) -> str:
    """A file name of at most 100 bytes; the true name stays inside the records."""
    safe = re.sub(r"[^\w.@+=-]+", "-", name.removesuffix(".py")).strip(".-") or "unnamed"
    return safe.encode()[-MAX_PART_BYTES:].decode("utf-8", "ignore")


class RunStore:
    """Writes one run's records. Made before anything is started; holds the folder's lock until closed."""

    def __init__(self, folder: Path, *, replace: bool = False, resume: bool = False) -> None:
        """Take the folder.

        Args:
            folder: Of a new run it is made, and opened for writing.
            replace: It may hold a run, which is then removed.
            resume: It holds a run that goes on. Nothing in it is changed, and nothing can be written before `open`.

        Raises:
            ConfigError: It holds a run already and is not to be replaced, it can't be made, or another process writes
                to it.
        """
        self.folder = folder
        self._descriptors: dict[str, int] = {}
        self._writing = anyio.CapacityLimiter(1)
        try:
            if not resume:
                _check_unused(folder, replace=replace)
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            if not resume:
                for name in RUN_FILES - {LOCK}:
                    (folder / name).unlink(missing_ok=True)
                self.open()
        except OSError as error:
            raise ConfigError(Mistake(f"can't be used: {error.strerror}", f"run folder {folder}")) from error

    def open(self) -> None:
        """Make the folder ready for records; what a killed launch was about to replace is removed.

        Raises:
            RunError: It can't be written.
        """
        for name in RUN_FILES:
            with _reported(self.folder / name):
                (self.folder / (name + NEW)).unlink(missing_ok=True)
        for name in (TRACES, ATTEMPTS):
            path = self.folder / name
            with _reported(path):
                self._descriptors[name] = _open(path)

    def close(self) -> None:
        """Free the folder."""
        for descriptor in (*self._descriptors.values(), self._lock):
            os.close(descriptor)

    async def append(self, *traces: Trace) -> None:
        """Add finished rollouts to `traces.jsonl`, all or none; once this returns, they are there whatever happens.

        What has no JSON form is replaced by text, and noted on the trace as an error.

        Raises:
            RunError: They can't be written; the file holds what it held before.
        """
        await self._append(TRACES, traces)

    async def append_attempt(self, trace: Trace, reason: Literal["interrupted", "retried", "pending"]) -> None:
        """Add a record that does not count, or not yet, to `attempts.jsonl`.

        Raises:
            RunError: It can't be written.
        """
        await self._append(ATTEMPTS, [trace], {"reason": reason})

    async def _append(self, name: str, traces: Sequence[Trace], extra: dict[str, Any] | None = None) -> None:
        # Shielded: a line that is being written is finished, and whoever is interrupted may still record that.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._write_lines, name, traces, extra or {}, limiter=self._writing)

    def _write_lines(self, name: str, traces: Sequence[Trace], extra: dict[str, Any]) -> None:
        lines = b"".join(encode_trace(trace, extra) + b"\n" for trace in traces)
        _append_to(self._descriptors[name], self.folder / name, lines)

    def write_whole(self, name: str, content: bytes) -> None:
        """Write a small file so that readers see the old or the new content, never a part.

        Raises:
            RunError: It can't be written; the old content stays.
        """
        replace_file(self.folder / name, [content])


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Give a file a new content. Readers, and whoever comes after a crash, see the old or the new one, never a part.

    Raises:
        RunError: It can't be written; the old content stays.
    """
    beside = path.with_name(path.name + NEW)
    try:
        with _reported(path):
            with beside.open("wb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            _sync(path.parent)
    except RunError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def append_whole(path: Path, lines: bytes) -> None:
    """Add whole lines to a file, all or none, and see to it that they are on the disk.

    Raises:
        RunError: They can't be written; the file holds what it held before.
    """
    with _reported(path):
        descriptor = _open(path)
        try:
            _append_to(descriptor, path, lines)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _append_to(descriptor: int, path: Path, lines: bytes) -> None:
    """One write; what a full disk has cut short is cut back to what stood there before."""
    start = os.fstat(descriptor).st_size
    try:
        is_whole, reason = os.write(descriptor, lines) == len(lines), os.strerror(errno.ENOSPC)
    except OSError as error:
        is_whole, reason = False, error.strerror or str(error)
    if not is_whole:
        os.ftruncate(descriptor, start)
        way_out = f"finished rollouts are kept, and vfx eval --resume {path.parent} goes on from there"
        raise RunError(f"{path}: a record can't be written: {reason}; {way_out}")


@contextmanager
def _reported(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: can't be written: {error.strerror or error}") from error


def _sync(folder: Path) -> None:
    """Make a rename in `folder` outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int:
    """Hold the folder until the descriptor is closed, which the system does for a process that dies."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(Mistake("another process is writing to it", f"run folder {folder}")) from error
    return descriptor


def _check_unused(folder: Path, *, replace: bool) -> None:
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set[str]()
    if not names:
        return
    if not replace:
        raise ConfigError(
            Mistake("it is in use already", f"run folder {folder}", "choose another --name, or --replace")
        )
    if not {name.removesuffix(NEW) for name in names} <= RUN_FILES or not names & {CONFIG, LOCK}:
        raise ConfigError(Mistake("it is not a run folder, so it is not replaced", f"run folder {folder}"))
