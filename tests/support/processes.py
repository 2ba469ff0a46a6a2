"""What is left of a command: its processes by a mark in their environment, and whether it handles signals yet."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio

__all__ = ["children", "descendants", "handles_signals", "in_groups", "is_alive", "survivors"]


async def handles_signals(pid: int) -> bool:
    """Wait until process `pid` has installed its handlers; False when it ends before.

    The interpreter itself handles SIGINT from its start, but not SIGTERM.
    """
    while True:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["State"].startswith("Z"):
            return False
        if int(fields["SigCgt"], 16) & (1 << (signal.SIGTERM - 1)):
            return True
        await anyio.sleep(0.002)


def survivors(mark: str) -> list[str]:
    """Command lines of the living processes that have `mark` in their environment."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def children(pid: int) -> list[int]:
    """The processes that the main thread of `pid` has started and not waited for."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    """All processes below `pid`; those that were given away to another process are not found."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:  # It has ended in the meantime.
        pass
    return [*found, *(below for child in found for below in descendants(child))]


def is_alive(pid: int) -> bool:
    """False for a process that only nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def in_groups(groups: Sequence[int]) -> list[str]:
    """Command lines of the living processes in these process groups; one that only nobody has waited for is dead."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) in groups and state != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
