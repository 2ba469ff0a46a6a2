"""What earlier launches left in a run's folder, and putting it in order before anything is started again.

Nothing is changed before every line has been read. Every change may be cut short at any byte and is then made again.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from vfx.errors import ConfigError, Mistake
from vfx.runner.environment import Environment
from vfx.runner.plan import Identity, Plan, identity_of
from vfx.runner.saved_config import to_toml
from vfx.runner.scoring import has_group_rewards
from vfx.runner.store import (
    ATTEMPTS,
    CONFIG,
    SUMMARY,
    SYSTEM_PROMPT,
    TORN,
    TRACES,
    RunStore,
    append_whole,
    replace_file,
    run_folder,
)
from vfx.runner.summary import Tally
from vfx.trace.reading import read_lines, read_trace
from vfx.trace.record import Trace

__all__ = ["Earlier", "TaskIdentity", "prepare", "recover"]

TaskIdentity = tuple[str, int]


@dataclass
class Earlier:
    """What earlier launches have done and need not be done again."""

    finished: set[Identity] = field(default_factory=set[Identity])
    """Rollouts whose records stand in `traces.jsonl`."""
    pending: dict[TaskIdentity, list[Trace]] = field(default_factory=dict[TaskIdentity, list[Trace]])
    """Rollouts that have ended and wait for the rest of their group to be scored, by task."""
    tally: Tally = field(default_factory=Tally)
    """The numbers of the finished rollouts, and the tokens of attempts that don't count."""
    taped: set[str] = field(default_factory=set[str])
    """Exchanges of a tape that the answers of all these came from, or are recorded as."""

    def has_ended(self, identity: Identity) -> bool:
        """True when the rollout need not be run."""
        return identity in self.finished or any(
            identity_of(trace) == identity for trace in self.pending.get(identity[:2], ())
        )


@dataclass(slots=True)
class _Record:
    """One line of `traces.jsonl`."""

    offset: int
    length: int
    identity: Identity
    attempt_id: str
    leaves_as: str | None = None
    """The reason under which it goes to `attempts.jsonl`; None when it stays."""


def prepare(
    environment: Environment, plan: Plan, *, replace: bool = False, resume: Path | None = None
) -> tuple[RunStore, Earlier]:
    """Take the folder of a run, new or to be gone on with, and save the configuration in it. May block.

    Args:
        environment: What runs.
        plan: All its rollouts.
        replace: The folder may hold a run, which is then removed.
        resume: The folder of the run that goes on; None for a new one.

    Returns:
        The store, which the caller closes, and what need not be run.

    Raises:
        ConfigError: The folder can't be used as asked for; nothing has been changed.
        RunError: It can't be written.
    """
    if resume is not None:
        _check_own(resume)
    folder = resume or run_folder(environment.config, environment.model)
    store = RunStore(folder, replace=replace, resume=resume is not None)
    try:
        if resume is not None:
            _check_system_prompt(folder, environment)
        earlier = Earlier() if resume is None else recover(store, plan)
        for client in environment.clients:
            client.skipped.update(earlier.taped)
        store.write_whole(CONFIG, to_toml(environment.config).encode())
        if environment.taskset.system_prompt_file is not None and environment.system_prompt is not None:
            store.write_whole(SYSTEM_PROMPT, environment.system_prompt.encode())
    except BaseException:
        store.close()
        raise
    return store, earlier


def _check_system_prompt(folder: Path, environment: Environment) -> None:
    """The configuration holds the name of the file only, and what stands in it bears on results."""
    kept, file = folder / SYSTEM_PROMPT, environment.taskset.system_prompt_file
    if file is not None and kept.exists() and kept.read_bytes() != (environment.system_prompt or "").encode():
        hint = "put it back to go on with the run, or start a new one"
        what = f"{file} has changed since the run began; what it held is in {kept}"
        raise ConfigError(Mistake(what, "--taskset.system-prompt-file", hint))


def _check_own(folder: Path) -> None:
    """Refuse what a replay made: its answers are another run's, and a model would be asked for the rest."""
    try:
        summary = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        return
    if isinstance(summary, dict) and (of := cast("dict[str, Any]", summary).get("replay_of")):
        raise ConfigError(
            Mistake("is a replay, which is not gone on with", str(folder), f"start anew: vfx replay {of}")
        )


def recover(store: RunStore, plan: Plan) -> Earlier:
    """Put the folder of a run in order and open it for writing.

    A torn last line goes to `traces.torn`. Records that are to be redone, and those of groups that are not complete, go
    to `attempts.jsonl`. May block: it reads everything.

    Raises:
        ConfigError: A whole line is not a record; nothing has been changed.
        RunError: The folder can't be written.
    """
    recovery = _Recovery(store.folder, plan)
    recovery.read()
    for name in (TRACES, ATTEMPTS):
        _cut_torn(store.folder, name)
    if any(record.leaves_as for record in recovery.records):
        _take_out(store, recovery)
    store.open()
    return recovery.earlier


class _Recovery:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self._traces, self._attempts = folder / TRACES, folder / ATTEMPTS
        self._planned = {planned.identity for planned in plan}
        self._grouped = {(task.key, occurrence) for task, occurrence in plan.tasks if has_group_rewards(task)}
        self._pending: dict[Identity, Trace] = {}
        self.records: list[_Record] = []
        self.attempts: set[tuple[str, str]] = set()
        """Id and reason of every record in `attempts.jsonl`."""
        self._held: set[str] = set()
        """Attempts that wait, or have waited, for their group: their cost counts with their group."""
        self.earlier = Earlier()

    def read(self) -> None:
        """Decide about every line."""
        self._read_attempts()
        self._read_traces()
        self._open_groups()
        for record in self.records:
            if record.leaves_as is None:
                self._pending.pop(record.identity, None)
        for identity, trace in self._pending.items():
            self.earlier.pending.setdefault(identity[:2], []).append(trace)

    def _read_attempts(self) -> None:
        tally = self.earlier.tally
        for number, line in _lines(self._attempts):
            trace, reason = _read(line, self._attempts, number)
            self.attempts.add((trace.id, reason))
            if reason == "pending" and not trace.errors:
                self._held.add(trace.id)
                if identity_of(trace)[:2] in self._grouped:
                    self._pending[identity_of(trace)] = trace
                    self.earlier.taped.update(trace.taped)
            elif trace.id not in self._held:
                tally.retried += reason == "retried"
                tally.add_cost(trace)

    def _read_traces(self) -> None:
        offset = 0
        for number, line in _lines(self._traces):
            trace, _ = _read(line, self._traces, number)
            record = _Record(offset, len(line) + 1, identity_of(trace), trace.id)
            offset += record.length
            self.records.append(record)
            if record.identity in self.earlier.finished:
                record.leaves_as = "duplicate"
            elif trace.errors and record.identity in self._planned:
                record.leaves_as = "redone"
            else:
                self.earlier.finished.add(record.identity)
                self.earlier.taped.update(trace.taped)
                if record.identity[:2] not in self._grouped:
                    self.earlier.tally.add(trace)
            if record.leaves_as and (trace.id, record.leaves_as) not in self.attempts and trace.id not in self._held:
                self.earlier.tally.add_cost(trace)

    def _open_groups(self) -> None:
        """Groups are compared as a whole: when one member is owed, the others leave and wait for it."""
        owed = {identity[:2] for identity in self._planned - self.earlier.finished}
        for record, line in self._grouped_lines():
            trace = read_trace(line)
            if record.identity[:2] not in owed:
                self.earlier.tally.add(trace)
            elif not trace.errors:
                record.leaves_as = "pending"
                self.earlier.finished.discard(record.identity)
                self._pending[record.identity] = trace

    def _grouped_lines(self) -> Iterator[tuple[_Record, bytes]]:
        chosen = [r for r in self.records if r.leaves_as is None and r.identity[:2] in self._grouped]
        if not chosen:
            return
        with self._traces.open("rb") as file:
            for record in chosen:
                file.seek(record.offset)
                yield record, file.read(record.length - 1)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The whole lines with their numbers, from 1; none of a file that is not there."""
    if path.exists():
        for number, (_, line) in enumerate(read_lines(path), start=1):
            yield number, line


def _read(line: bytes, path: Path, number: int) -> tuple[Trace, str]:
    """The record in a line, and the reason why it does not count ("" of one that does)."""
    try:
        trace = read_trace(line)
        return trace, str(json.loads(line).get("reason", "")) if path.name == ATTEMPTS else ""
    except (ValueError, RecursionError) as error:
        hint = "put the file back from a copy, or remove the line: its rollout is then run again"
        raise ConfigError(Mistake(f"line {number} is no record of a rollout: {error}", str(path), hint)) from error


def _cut_torn(folder: Path, name: str) -> None:
    """Move what stands behind the last newline of a file to `traces.torn`."""
    path = folder / name
    if not path.exists():
        return
    whole = sum(len(line) + 1 for _, line in read_lines(path))
    with path.open("r+b") as file:
        file.seek(whole)
        torn = file.read()
        if not torn:
            return
        kept = folder / TORN
        # A kill between the two steps must not keep it twice.
        if not kept.exists() or not kept.read_bytes().endswith(torn + b"\n"):
            append_whole(kept, torn + b"\n")
        file.truncate(whole)
        os.fsync(file.fileno())


def _take_out(store: RunStore, recovery: _Recovery) -> None:
    """Copy the lines that leave to `attempts.jsonl`, then put a file without them in the place of the old one."""
    traces = store.folder / TRACES
    with traces.open("rb") as old:
        leaving: list[bytes] = []
        for record in recovery.records:
            if record.leaves_as and (record.attempt_id, record.leaves_as) not in recovery.attempts:
                old.seek(record.offset)
                leaving.append(_with_reason(old.read(record.length), record.leaves_as))
        append_whole(store.folder / ATTEMPTS, b"".join(leaving))
        staying = (record for record in recovery.records if record.leaves_as is None)
        replace_file(traces, (_read_at(old, record) for record in staying))


def _read_at(file: BinaryIO, record: _Record) -> bytes:
    file.seek(record.offset)
    return file.read(record.length)


def _with_reason(line: bytes, reason: str) -> bytes:
    """The line as it was, with the reason before everything else."""
    return b'{"reason":"' + reason.encode() + b'",' + line.lstrip()[1:]
