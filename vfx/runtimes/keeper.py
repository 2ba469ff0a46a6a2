"""The process that starts programs for vfx and leaves nothing of them behind. Run by path; standard library only.

vfx sends one byte with four descriptors for each program: a control socket, and what becomes its stdin, stdout and
stderr. The supervisor forked for it reads from the control socket what to start, and reports there. On Linux it adopts
every orphan below it, so "no child is left" means that nothing of the program is, whatever its session and whatever it
did to its environment. When the other end of a control socket closes, all below is killed; when vfx has gone, however
it went, the folder of the run is removed too.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["GRACEFUL", "SPEC_LENGTH_BYTES", "cpu_used", "descendants", "memory_held", "remove_folder", "supervise"]

GRACEFUL = b"T"
"""Sent on a control socket: end the program, SIGTERM first. A closed socket ends it without."""

IS_LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 0.2
KILL_BOUND_S = 5.0
ROUND_S = 0.005
WATCH_S = 0.1
SPEC_LENGTH_BYTES = 8

_Start = Callable[[Any, list[int], Callable[[], None]], int]
"""Starts a program and returns its number: from what to start, what becomes its stdin, stdout and stderr, and a
function for a child that is a copy of the supervisor to call first, which closes what is the supervisor's alone."""


def main(parent: str) -> None:
    """Serve vfx on the socket that is stdin until it closes.

    Args:
        parent: Where the run's folder is made.
    """
    wake = _Wake()
    _adopt_orphans()
    vfx = socket.socket(fileno=os.dup(0))
    folder = os.path.join(parent, f"vfx-{os.urandom(8).hex()}")
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        vfx.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    supervisors: set[int] = set()
    # A collection in a supervisor would copy most of the memory that it shares with this process.
    gc.disable()
    gc.freeze()
    try:
        # A vfx that went before it read this is noticed below.
        with contextlib.suppress(OSError):
            vfx.sendall(json.dumps({"folder": folder}).encode() + b"\n")
        while _serve(vfx, wake, supervisors, _open_process):
            pass
    finally:
        give_up_at = time.monotonic() + 2 * KILL_BOUND_S
        while not _reap(supervisors) and time.monotonic() < give_up_at:
            _kill_strays(supervisors)
            wake.wait(None, ROUND_S)
        remove_folder(folder)


def supervise(vfx: socket.socket, start: _Start) -> None:
    """_Start programs as vfx asks for them, each below a supervisor, until it closes the socket. Returns at once then.

    Whoever started this process ends what is left below it.
    """
    wake = _Wake()
    _adopt_orphans()
    supervisors: set[int] = set()
    gc.disable()
    gc.freeze()
    while _serve(vfx, wake, supervisors, start):
        pass


def _serve(vfx: socket.socket, wake: "_Wake", supervisors: set[int], start: _Start) -> bool:
    """Handle what has happened; returns whether vfx is still there."""
    _reap(supervisors)
    has_strays = _kill_strays(supervisors)
    if not wake.wait(vfx, ROUND_S if has_strays else None):
        return True
    try:
        message, descriptors, _, _ = socket.recv_fds(vfx, 1, 4)
    except OSError:
        return False
    if not message:
        return False
    try:
        pid = os.fork()
    except OSError as error:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptors[0])) as control:
            _tell(control, error=f"no process for it: {error}")
        pid = -1
    if pid == 0:
        vfx.close()
        wake.close()
        _be_supervisor(descriptors, start)
    if pid > 0:
        supervisors.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def _reap(supervisors: set[int]) -> bool:
    """Take notice of children that have ended; returns whether none is left."""
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            supervisors.discard(pid)
    except ChildProcessError:
        return True
    return False


def _kill_strays(supervisors: set[int]) -> bool:
    """Kill what a supervisor has left behind that was killed itself; returns whether there was something."""
    strays = set(_children(os.getpid())) - supervisors
    for stray in strays:
        for pid in (stray, *descendants(stray)):
            _send(pid, signal.SIGKILL)
    return bool(strays)


def _be_supervisor(descriptors: list[int], start: _Start) -> NoReturn:
    code = 1
    try:
        control, *streams = descriptors
        _Supervisor(socket.socket(fileno=control), start).run(streams)
        code = 0
    except (OSError, ValueError):
        # vfx has gone, or sent only half of what to start.
        pass
    finally:
        os._exit(code)


class _Supervisor:
    """Starts one program, and stays until nothing of it is left."""

    def __init__(self, control: socket.socket, start: _Start) -> None:
        self._control = control
        self._start = start
        self._wake = _Wake()
        _adopt_orphans()
        self._pid = 0
        self._status: int | None = None
        self._reaped_cpu = 0.0

    def run(self, streams: list[int]) -> None:
        spec = _read_spec(self._control)
        try:
            self._pid = self._start(spec, streams, self._let_go)
        except (OSError, ValueError) as error:
            _tell(self._control, error=error.strerror if isinstance(error, OSError) else str(error))
            return
        for stream in streams:
            os.close(stream)
        _tell(self._control, pid=self._pid)
        cause, grace = self._watch(spec["memory"], spec["cpu_seconds"], spec["grace"])
        left = self._end(grace)
        _tell(self._control, gone=True, cause=cause, left=left)

    def _let_go(self) -> None:
        self._control.close()
        self._wake.close()

    def _watch(self, memory: int | None, cpu_seconds: float | None, grace: float) -> tuple[str | None, float]:
        """Wait until the program has ended or has to; returns why it has to, and how long it may take over it."""
        is_limited = memory is not None or cpu_seconds is not None
        while not self._has_ended():
            if self._wake.wait(self._control, WATCH_S if is_limited else None):
                return None, grace if self._is_graceful() else 0.0
            if memory is not None and memory_held(descendants(os.getpid()), memory) > memory:
                return "memory", 0.0
            if cpu_seconds is not None and self._reaped_cpu + cpu_used(descendants(os.getpid())) > cpu_seconds:
                return "cpu", 0.0
        return None, LEFTOVER_GRACE_S

    def _end(self, grace: float) -> list[int]:
        """End all that is left; returns what could not be ended."""
        begin = time.monotonic()
        kill_at = begin + grace
        is_asked = False
        is_connected = True
        while not self._is_empty():
            now = time.monotonic()
            if now >= kill_at:
                self._signal_all(signal.SIGKILL)
            elif not is_asked:
                self._signal_all(signal.SIGTERM)
                is_asked = True
            if now > kill_at + KILL_BOUND_S:
                return descendants(os.getpid())
            # Nothing else is awaited between two rounds of kills: what was just forked must not get far.
            seconds = ROUND_S if now >= kill_at else kill_at - now
            if self._wake.wait(self._control if is_connected else None, seconds) and not self._is_graceful():
                is_connected, kill_at = False, min(kill_at, now)
        return []

    def _is_graceful(self) -> bool:
        try:
            return self._control.recv(1) == GRACEFUL
        except OSError:
            return False

    def _signal_all(self, signum: int) -> None:
        for pid in descendants(os.getpid()):
            _send(pid, signum)
        # The number of the group is safe as long as its leader has not been waited for, or has members outside Linux.
        if not IS_LINUX or (signum == signal.SIGKILL and self._status is None):
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signum)

    def _has_ended(self) -> bool:
        self._is_empty()
        return self._status is not None

    def _is_empty(self) -> bool:
        """Reap what has ended; returns whether nothing is left."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return False
                self._reaped_cpu += usage.ru_utime + usage.ru_stime
                if pid == self._pid:
                    self._status = os.waitstatus_to_exitcode(status)
                    _tell(self._control, exited=self._status)
        except ChildProcessError:
            return IS_LINUX or not _has_group(self._pid)


def _open_process(spec: Any, streams: list[int], _let_go: Callable[[], None]) -> int:
    process = subprocess.Popen(  # noqa: S603 - started as the harness says, never through a shell
        [arg.encode("latin-1") for arg in spec["argv"]],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd=spec["cwd"].encode("latin-1"),
        env={name.encode("latin-1"): value.encode("latin-1") for name, value in spec["env"].items()},
        start_new_session=True,
    )
    # Reaped by the supervisor and not by its own object.
    process.returncode = 0
    return process.pid


class _Wake:
    """Waits for a socket or the end of a child."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # A handler and not SIG_IGN, which programs would inherit. Ctrl-C is the business of vfx.
        for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, _ignore)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._reader, self._writer):
            os.close(end)

    def wait(self, other: socket.socket | None, seconds: float | None) -> bool:
        """Wait for at most so many seconds, None = without bound; returns whether `other` is readable."""
        watched = [self._reader] if other is None else [self._reader, other.fileno()]
        ready, _, _ = select.select(watched, [], [], None if seconds is None else max(0.0, seconds))
        if self._reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 4096)
        return other is not None and other.fileno() in ready


def _ignore(*_: object) -> None:
    pass


def _read_spec(control: socket.socket) -> Any:
    length = int.from_bytes(_receive(control, SPEC_LENGTH_BYTES), "big")
    return json.loads(_receive(control, length))


def _receive(control: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = control.recv(length - len(data))
        if not piece:
            raise ConnectionResetError("vfx has gone")
        data += piece
    return bytes(data)


def _tell(control: socket.socket, **report: object) -> None:
    # vfx may have gone; then the end of the program matters to nobody, but still has to come.
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(report).encode() + b"\n")


def _adopt_orphans() -> None:
    if IS_LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signum)


def _has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _children(pid: int) -> list[int]:
    """The children of a process, whichever of its threads started them; empty where this can't be known."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on."""
    found = _children(pid)
    for child in found:  # Grows while it is walked.
        found += _children(child)
    return found


def memory_held(pids: list[int], limit: int) -> int:
    """The memory that processes hold, in bytes; exact, shared pages counted once, only where it may be over `limit`."""
    page = os.sysconf("SC_PAGE_SIZE")
    resident = sum(int(fields[1]) * page for pid in pids if (fields := _read(f"/proc/{pid}/statm").split()))
    if resident <= limit:
        return resident
    lines = [line for pid in pids for line in _read(f"/proc/{pid}/smaps_rollup").splitlines()]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


def cpu_used(pids: list[int]) -> float:
    """The CPU time of processes and of the children that they have waited for, in seconds."""
    stats = [_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[11:15] for pid in pids]
    return sum(sum(map(int, fields)) for fields in stats) / os.sysconf("SC_CLK_TCK")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # The process has ended.
        return b""


def remove_folder(folder: str) -> None:
    """Remove a folder with all in it, also what a program has made unreadable; what can't be removed stays."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        return
    import shutil  # noqa: PLC0415 - half of this process's start, and rarely needed

    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    with contextlib.suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)
    for path, folders, _ in os.walk(folder):
        for name in (os.path.join(path, name) for name in folders):
            with contextlib.suppress(OSError):
                if not os.path.islink(name):
                    os.chmod(name, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
