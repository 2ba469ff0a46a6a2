"""The folder of one run. Only whole lines ever stand in its files, whatever happens while they are written."""

import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from vfx.errors import ConfigError, Mistake, RunError
from vfx.runner.config import EvalConfig
from vfx.trace.record import Trace, encode_record

__all__ = ["ATTEMPTS", "CONFIG", "LOG", "SUMMARY", "TRACES", "RunStore", "run_folder"]

TRACES = "traces.jsonl"
ATTEMPTS = "attempts.jsonl"
CONFIG = "config.toml"
SUMMARY = "summary.json"
LOG = "run.log"
LOCK = ".lock"
RUN_FILES = frozenset({TRACES, ATTEMPTS, CONFIG, SUMMARY, LOG, LOCK})

MAX_PART_BYTES = 100


def run_folder(config: EvalConfig, model: str) -> Path:
    """Where a new run of `config` is kept: `outputs/<env>--<model>--<harness>/<time>-<8 hex>`, or its `--name`."""
    parts = (config.taskset.id, model, config.harness.id or "chat")
    name = config.name or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    return config.output_dir / "--".join(map(_safe_part, parts)) / _safe_part(name)


def _safe_part(name: str) -> str:
    """A file name of at most 100 bytes; the true name stays inside the records."""
    safe = re.sub(r"[^\w.@+=-]+", "-", name.removesuffix(".py")).strip(".-") or "unnamed"
    return safe.encode()[-MAX_PART_BYTES:].decode("utf-8", "ignore")


class RunStore:
    """Writes one run's records. Made before anything is started; holds the folder's lock until closed."""

    def __init__(self, folder: Path, *, replace: bool = False) -> None:
        """Take the folder.

        Raises:
            ConfigError: It holds a run already and is not to be replaced, or it can't be made.
        """
        self.folder = folder
        try:
            _check_unused(folder, replace=replace)
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            for name in RUN_FILES - {LOCK}:
                (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(Mistake(f"can't be used: {error.strerror}", f"run folder {folder}")) from error
        self._writing = anyio.CapacityLimiter(1)
        self._descriptors = {name: self._open(name) for name in (TRACES, ATTEMPTS)}

    def _open(self, name: str) -> int:
        return os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        """Free the folder."""
        for descriptor in (*self._descriptors.values(), self._lock):
            os.close(descriptor)

    async def append(self, trace: Trace) -> None:
        """Add a finished rollout to `traces.jsonl`; once this returns, it is there whatever happens to us.

        Raises:
            RunError: It can't be written; the file holds what it held before.
        """
        await self._append(TRACES, trace.to_record())

    async def append_attempt(self, trace: Trace, reason: str) -> None:
        """Add a record that does not count to `attempts.jsonl`.

        Args:
            trace: The attempt.
            reason: `interrupted`, or `retried`.

        Raises:
            RunError: It can't be written.
        """
        await self._append(ATTEMPTS, {"reason": reason, **trace.to_record()})

    async def _append(self, name: str, record: Mapping[str, Any]) -> None:
        # Shielded: a line that is being written is finished, and whoever is interrupted may still record that.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._write_line, name, record, limiter=self._writing)

    def _write_line(self, name: str, record: Mapping[str, Any]) -> None:
        descriptor = self._descriptors[name]
        line = encode_record(record) + b"\n"
        start = os.fstat(descriptor).st_size
        try:
            is_whole = os.write(descriptor, line) == len(line)
            reason = os.strerror(errno.ENOSPC)
        except OSError as error:
            is_whole, reason = False, str(error.strerror)
        if not is_whole:
            os.ftruncate(descriptor, start)
            raise RunError(f"{self.folder / name}: a record can't be written: {reason}")

    def write_whole(self, name: str, content: bytes) -> None:
        """Write a small file so that readers see the old or the new content, never a part.

        Raises:
            RunError: It can't be written.
        """
        target = self.folder / name
        beside = target.with_suffix(target.suffix + ".new")
        try:
            beside.write_bytes(content)
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise RunError(f"{target}: can't be written: {error.strerror}") from error


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
    if not names <= RUN_FILES or CONFIG not in names:
        raise ConfigError(Mistake("it is not a run folder, so it is not replaced", f"run folder {folder}"))
