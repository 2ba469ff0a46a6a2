"""The program: signals first, then the command, then an exit that nothing can hold up."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, TextIO

from vfx._signals import inbox
from vfx.errors import ConfigError, RunError, root_cause
from vfx.redaction import redact

__all__ = ["main"]

LAST_THREADS_S = 0.5
"""How long threads that are just ending are waited for."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code.

    Args:
        argv: The arguments; None = those of the process.
    """
    inbox.install()
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a log that can't show a character must not end the program.
        stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    _leave(_run(sys.argv[1:] if argv is None else list(argv)))


def _run(argv: Sequence[str]) -> int:
    # Only now: a signal during these imports must already find its handler.
    from vfx.cli.app import app  # noqa: PLC0415

    try:
        app(argv, prog_name="vfx")
    except SystemExit as stop:
        return _exit_code(stop)
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001 - the program's outermost boundary
        return _explain(error)
    return 0


def _exit_code(stop: SystemExit) -> int:
    if isinstance(stop.code, str):
        _say(stop.code)
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _explain(error: Exception) -> int:
    cause = root_cause(error)
    if isinstance(cause, ConfigError):
        count = len(cause.mistakes)
        _say(f"vfx: {count} mistake{'' if count == 1 else 's'}:")
        for mistake in cause.mistakes:
            _say("\n".join(f"  {line}" for line in str(mistake).splitlines()))
        return 2
    if isinstance(cause, RunError):
        _say(f"vfx: {cause}")
        return 1
    # A bug of ours, or code of the user's that we were not asked to guard: the trace is what helps.
    import traceback  # noqa: PLC0415

    _say("".join(traceback.format_exception(error)).rstrip())
    return 1


def _say(text: str) -> None:
    with suppress(OSError):
        print(redact(text), file=sys.stderr, flush=True)  # noqa: T201 - what the person has to know


def _leave(code: int) -> NoReturn:
    """Exit, although a hook that was given up may still run in a thread, for which the interpreter would wait."""
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    # The interpreter's end puts the default action back where a handler was, and the code would become the signal's.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    deadline = time.monotonic() + LAST_THREADS_S
    threads = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        os._exit(code)
    sys.exit(code)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        # Whoever read it has gone. The interpreter flushes again on its way out, and must not fail then.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
