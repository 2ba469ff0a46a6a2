"""The loop that keeps the picture of a run up to date, at a cost that stays small however much there is to see."""

import io
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.to_thread
from rich.console import Console
from rich.text import Text

from vfx.dashboard.screen import Glyphs, Page, draw, row_space
from vfx.dashboard.terminal import Terminal
from vfx.dashboard.watch import Watch
from vfx.runner.evaluate import Run

__all__ = ["show_live"]

PAUSE_S = 0.2
"""Between two pictures, at least."""
LARGEST_SHARE = 0.03
"""Of one processor's time for making pictures."""
KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
NEXT = (b"n", b" ", b"j", b"\x1b[C", b"\x1b[B", b"\x1b[6~")
PREVIOUS = (b"p", b"b", b"k", b"\x1b[D", b"\x1b[A", b"\x1b[5~")


class _Pager:
    """Which page of running rollouts is shown."""

    def __init__(self) -> None:
        self.number = 0

    def press(self, typed: bytes) -> None:
        """Turn pages by what was typed, which may be several keys; others do nothing."""
        for key in KEY.findall(typed):
            self.number += (key in NEXT) - (key in PREVIOUS)

    def clamp(self, rows: int, size: int) -> int:
        """The page, within what there is now."""
        self.number = max(0, min(self.number, (rows - 1) // size if size else 0))
        return self.number


async def show_live(run: Run, terminal: Terminal) -> None:
    """Repaint until cancelled.

    Args:
        run: What is shown.
        terminal: Held by the caller, who gives it back.
    """
    pager = _Pager()
    async with anyio.create_task_group() as group:
        group.start_soon(_read_keys, terminal, pager, name="keys")
        await _repaint(run, terminal, pager)


async def _repaint(run: Run, terminal: Terminal, pager: _Pager) -> None:
    watch, glyphs = Watch(run), Glyphs.for_encoding(terminal.encoding)
    # Only styles come from it; what is written, and when, is the terminal's affair.
    console = Console(file=io.StringIO(), force_terminal=True, highlight=False, markup=False, legacy_windows=False)
    writing = anyio.CapacityLimiter(1)
    while True:
        started = time.perf_counter()
        size = terminal.size()
        lines = _picture(watch, pager, size, glyphs, has_keys=terminal.has_keys)
        styled = _styled(console, lines, size)
        cost = time.perf_counter() - started
        # In a thread: a terminal that takes no output (Ctrl-S) holds up nobody else.
        await anyio.to_thread.run_sync(terminal.paint, styled, size, abandon_on_cancel=True, limiter=writing)
        await anyio.sleep(max(PAUSE_S, cost / LARGEST_SHARE))


def _picture(watch: Watch, pager: _Pager, size: os.terminal_size, glyphs: Glyphs, *, has_keys: bool) -> Sequence[Text]:
    snapshot = watch.snapshot()
    space = row_space(snapshot, size.columns, size.lines)
    number = pager.clamp(sum(snapshot.stages.values()), space)
    rows = watch.rows(number * space, space)
    return draw(snapshot, Page(rows, number, space, has_keys), size.columns, size.lines, glyphs)


def _styled(console: Console, lines: Sequence[Text], size: os.terminal_size) -> list[str]:
    console.width = size.columns + 1
    with console.capture() as capture:
        console.print(Text("\n").join(lines), no_wrap=True, overflow="crop", soft_wrap=True)
    return capture.get().rstrip("\n").split("\n")


async def _read_keys(terminal: Terminal, pager: _Pager) -> None:
    with terminal.open_keys() as descriptor, suppress(OSError):
        while descriptor is not None:
            await anyio.wait_readable(descriptor)
            if terminal.may_read:
                typed = os.read(descriptor, 64)
                if not typed:
                    return
                pager.press(typed)
            # What is typed for someone else stays readable.
            await anyio.sleep(PAUSE_S)
