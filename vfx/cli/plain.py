"""Progress as plain lines on stderr: for logs, pipes and dumb terminals. No escape codes, nothing is redrawn."""

import sys
import time
from contextlib import suppress

import anyio

from vfx.dashboard.words import duration, one_line, tokens
from vfx.redaction import redact
from vfx.runner.evaluate import Run

__all__ = ["progress_line", "report", "say"]

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 20.0
"""A line is due at least every 30 s, however slow the reader or the event loop."""
TEARDOWN_PATIENCE_S = 1.0


async def report(run: Run) -> None:
    """A line when something has changed: often in the first seconds, then rarely, at least every 20 s."""
    pause, shown, stopping_since = FIRST_PAUSE_S, -1, None
    next_line = time.monotonic() + pause
    while True:
        await anyio.sleep(0.25)
        now = time.monotonic()
        if run.phase == "stopping" and run.shutdown.signum is not None:
            stopping_since = stopping_since or now
            if now - stopping_since > TEARDOWN_PATIENCE_S and run.shutdown.waiting_for:
                say(f"waiting for {', '.join(sorted(set(run.shutdown.waiting_for.values())))}")
                stopping_since = now
        elif now >= next_line:
            if run.tally.done != shown or pause == LONGEST_PAUSE_S:
                say(progress_line(run))
                shown = run.tally.done
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
            next_line = now + pause


def progress_line(run: Run) -> str:
    """Where the run stands, on one line."""
    tally = run.tally
    reward = tally.reward.mean
    parts = [
        f"{tally.done}/{tally.planned} done",
        f"{tally.running}{f'/auto {run.concurrency.limit}' if run.concurrency.is_auto else ''} running",
        f"{tally.errored} errored",
        f"reward {'-' if reward is None else format(reward, '.3f')}",
        f"{tokens(tally.usage)} tokens",
        f"{run.seconds:.0f} s",
    ]
    waiting = run.environment.waiting
    if waiting.calls:
        seconds = max(0.0, waiting.until - time.time())
        reason = one_line(waiting.reason, 120)
        parts.append(f"{waiting.calls} calls waiting: {reason}, at most {duration(seconds)} more")
    if run.phase == "starting":
        parts.append("starting")
    return "  ".join(parts)


def say(line: str) -> None:
    """Print a line of progress."""
    # Whoever read our stderr may have gone; the run goes on.
    with suppress(OSError):
        print(f"vfx: {redact(line)}", file=sys.stderr, flush=True)  # noqa: T201 - the command's progress
