"""The process that tool servers are forked from: what they import costs half a second, which is then paid once a run.

It speaks the keeper's protocol on stdin, a socket: each server has a supervisor of its own, so that nothing of it is
left when it ends. A host of another toolset is one more fork that has its module imported, too, and the servers of
rollouts are forked from there; no loop, no thread runs in a process that is forked from.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any, NoReturn, cast

import anyio

from vfx.runtimes.keeper import supervise
from vfx.tools import serve
from vfx.tools.spec import ServerSpec

__all__ = ["HOST", "READY", "SERVER", "main"]

HOST = "tool host"
"""The `argv[0]` that asks for a process to fork servers of one toolset from."""
SERVER = "tool server"
"""The one that asks for a server."""
READY = "ready"


def main() -> None:
    """Fork servers until vfx closes the socket."""
    # The loop's own modules are imported when one first runs.
    anyio.run(anyio.sleep, 0)
    _fork_for(sys.stdin.fileno())


def _fork_for(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as vfx:
        _say(1, READY)
        supervise(vfx, _fork)


def _fork(spec: Any, streams: list[int], let_go: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        _be_child(spec, streams, let_go)
    return pid


def _be_child(spec: Any, streams: list[int], let_go: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        let_go()
        _settle(spec, streams)
        code = _run_host() if spec["argv"][0] == HOST else _run_server()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - what is left of it is what vfx tells
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _settle(spec: Any, streams: list[int]) -> None:
    """Become the process that a program of its own would be."""
    os.setsid()
    for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(spec["cwd"].encode("latin-1"))
    os.environ.clear()
    os.environ.update(
        {os.fsdecode(k.encode("latin-1")): os.fsdecode(v.encode("latin-1")) for k, v in spec["env"].items()}
    )
    tempfile.tempdir = None
    if numpy := sys.modules.get("numpy"):
        # Python's own generator is seeded anew by a fork, this one goes on alike in each.
        numpy.random.seed()
    gc.enable()


def _run_server() -> int:
    with open(0, "rb", closefd=False) as stdin:
        spec = ServerSpec.decode(stdin.read())
    # What tools print must not be taken for our report, nor be lost with a server that dies.
    report = os.dup(1)
    os.dup2(2, 1)
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    return serve.serve(spec, lambda line: _say(report, line))


def _run_host() -> int:
    with socket.socket(fileno=os.dup(0)) as vfx:
        spec = ServerSpec.decode(_read_line(vfx))
    with contextlib.suppress(Exception):  # A server will say what is wrong with it.
        serve.offered(spec.load_class())
    if threading.active_count() > 1:
        _say(1, "its module starts threads, which a fork would lose")
        return 0
    _fork_for(0)
    return 0


def _read_line(vfx: socket.socket) -> bytes:
    # Nothing follows it before vfx has been told that we are ready.
    line = b""
    while not line.endswith(b"\n") and (piece := vfx.recv(1 << 16)):
        line += piece
    return line


def _say(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode() + b"\n")


if __name__ == "__main__":
    main()
