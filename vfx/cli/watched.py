"""Runs what takes a while and has no display of its own: signals end it cleanly, stderr says where it stands."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from vfx._concurrency import Shutdown, shutdown_on_signals
from vfx.redaction import redact

__all__ = ["run_watched"]

PAUSE_S = 10.0
"""Between two lines of progress."""


def run_watched(work: Callable[[Shutdown], Awaitable[None]], progress: Callable[[], str]) -> Shutdown:
    """Run `work` in an event loop of its own, to its end or to a signal.

    Args:
        work: Gets what tells it about signals.
        progress: Where it stands, on one line.
    """
    return anyio.run(_run, work, progress)


async def _run(work: Callable[[Shutdown], Awaitable[None]], progress: Callable[[], str]) -> Shutdown:
    shutdown = Shutdown()
    async with anyio.create_task_group() as group:
        group.start_soon(_tell, progress, name="progress")
        async with shutdown_on_signals(_announce) as shutdown:
            await work(shutdown)
        group.cancel_scope.cancel()
    return shutdown


async def _tell(progress: Callable[[], str]) -> None:
    while True:
        await anyio.sleep(PAUSE_S)
        _say(progress())


def _announce(shutdown: Shutdown) -> None:
    waiting = ", ".join(sorted(set(shutdown.waiting_for.values())))
    if not shutdown.is_forced:
        _say("stopping; once more to end at once")
    else:
        _say(f"ending at once{': waiting for ' + waiting if waiting else ''}")


def _say(line: str) -> None:
    # Whoever read our stderr may have gone; the work goes on.
    with suppress(OSError):
        print(f"vfx: {redact(line)}", file=sys.stderr, flush=True)  # noqa: T201 - the command's progress
