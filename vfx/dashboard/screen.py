"""The picture of a run: a snapshot, a size and a page make lines of text. Pure.

Colours are those of the terminal's own palette that can be read on light and on dark; none carries a meaning alone.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from vfx.dashboard.watch import Row, Snapshot
from vfx.dashboard.words import count, duration, estimate
from vfx.runner.summary import STAGES

__all__ = ["Glyphs", "Page", "draw", "row_space"]

LABEL_WIDTH = 11
WIDE = 120
"""From this width on there is room for what models say and for more errors."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of the bar, and what a cut ends in."""

    full: str = "━"
    rest: str = "─"
    separator: str = " · "
    cut: str = "…"

    @classmethod
    def for_encoding(cls, encoding: str | None) -> "Glyphs":
        """Plain ASCII where the terminal's encoding can't carry the others."""
        try:
            "━─·…".encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return cls("#", "-", " | ", "~")
        return cls()


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of running rollouts that are shown."""

    rows: Sequence[Row]
    number: int = 0
    """From 0."""
    size: int = 1
    """Rows of a full page."""
    has_keys: bool = False
    """Whether there are keys to turn it."""


def row_space(snapshot: Snapshot, width: int, height: int) -> int:
    """How many rows of running rollouts fit below the numbers; 0 when the terminal is too small for any."""
    used = sum(1 for _ in _numbers(snapshot, width, Glyphs()))
    # A blank line and the heads above the rows, a foot below them.
    return max(0, height - used - 3)


def draw(snapshot: Snapshot, page: Page, width: int, height: int, glyphs: Glyphs | None = None) -> list[Text]:
    """The lines of the picture, none wider than `width`, at most `height`."""
    glyphs = glyphs or Glyphs()
    lines = [*_numbers(snapshot, width, glyphs), *_rollouts(snapshot, page, width, glyphs)]
    for line in lines:
        if line.cell_len > width:
            line.truncate(max(0, width - 1))
            line.append(glyphs.cut)
    return lines[: max(1, height)]


def _numbers(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Iterator[Text]:
    yield _title(snapshot, width, glyphs)
    yield _bar(snapshot, width, glyphs)
    yield Text()
    yield _field("rollouts", *_states(snapshot))
    stages = [f"{snapshot.stages[name]} {name}" for name in _stages_in_order(snapshot)]
    yield _field("stages", "  ".join(stages) or "-")
    scored = f"  over {snapshot.scored} scored" if snapshot.scored else ""
    yield _field("reward", (estimate(snapshot.reward), "bold"), scored)
    yield _field("tokens", _tokens(snapshot))
    yield _field("speed", _speed(snapshot))
    yield from _waits(snapshot)
    yield from _errors(snapshot, width, glyphs)


def _field(label: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", "bold" if label else ""), *parts, no_wrap=True, end="")


def _title(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Text:
    right = f"{snapshot.phase}  {duration(snapshot.seconds)}"
    room = max(0, width - len(right) - 2)
    left = _cut(glyphs.separator.join(snapshot.title), room, glyphs)
    gap = " " * max(1, width - cell_len(left) - len(right))
    return Text.assemble((left, "bold"), gap, right, no_wrap=True, end="")


def _bar(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Text:
    planned = max(1, snapshot.planned)
    left, is_going = snapshot.remaining_seconds, snapshot.phase == "running"
    # Always the same width, so that the bar does not jump.
    ends = f"{'' if left is None or not is_going else duration(left) + ' left':<12}"
    words = f"  {snapshot.done}/{snapshot.planned}  {100 * snapshot.done // planned} %  {ends}"
    room = max(10, width - len(words))
    done = room * snapshot.done // planned
    # One errored rollout among thousands still shows.
    errored = min(done, -(-room * snapshot.errored // planned))
    bar = [
        (glyphs.full * (done - errored), "green"),
        (glyphs.full * errored, "red"),
        (glyphs.rest * (room - done), ""),
    ]
    return Text.assemble(*bar, words.rstrip(), no_wrap=True, end="")


def _states(snapshot: Snapshot) -> Iterator[str | tuple[str, str]]:
    yield f"{snapshot.scored} scored  "
    yield (f"{snapshot.errored} errored", "red") if snapshot.errored else "0 errored"
    allowed = "" if snapshot.allowed is None else f"/auto {snapshot.allowed}"
    yield f"  {snapshot.running}{allowed} running  {snapshot.waiting} to come"
    if snapshot.interrupted:
        yield (f"  {snapshot.interrupted} interrupted", "red")


def _stages_in_order(snapshot: Snapshot) -> Sequence[str]:
    known = [name for name in STAGES if name in snapshot.stages]
    return [*known, *sorted(snapshot.stages.keys() - set(known))]


def _tokens(snapshot: Snapshot) -> str:
    usage = snapshot.usage
    is_known = usage.input_tokens is not None or usage.output_tokens is not None
    text = "unknown" if snapshot.unknown_usage else "-"
    if is_known:
        text = f"{count(usage.input_tokens or 0)} in  {count(usage.output_tokens or 0)} out"
    if is_known and snapshot.unknown_usage:
        text += f"  ({count(snapshot.unknown_usage)} turns without a count)"
    for purpose, tokens in snapshot.side_tokens.items():
        text += f"  {purpose} {count(tokens)}"
    return text


def _speed(snapshot: Snapshot) -> str:
    if snapshot.rate is None:
        rollouts = "-"
    elif snapshot.rate >= 1:
        rollouts = f"{snapshot.rate:.1f} rollouts/s"
    else:
        rollouts = f"{60 * snapshot.rate:.1f} rollouts/min"
    return rollouts if not snapshot.token_rate else f"{rollouts}  {count(round(snapshot.token_rate))} tokens/s"


def _waits(snapshot: Snapshot) -> Iterator[Text]:
    again = f"{snapshot.sent_again} calls sent again  {snapshot.retried} rollouts tried again"
    if snapshot.injected:
        again += f"  {snapshot.injected} faults injected"
    yield _field("retries", again)
    if snapshot.ending:
        yield _field("ending", ("waiting for " + ", ".join(snapshot.ending), "magenta"))
    elif snapshot.wait is not None:
        wait = snapshot.wait
        until = time.strftime("%H:%M:%S", time.localtime(wait.until))
        calls = f"{wait.calls} call{'' if wait.calls == 1 else 's'}"
        text = f"{calls} until {until} ({duration(wait.seconds)}): {wait.reason}"
        yield _field("waiting", (text, "magenta"))
    else:
        yield _field("waiting", "-")


def _errors(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Iterator[Text]:
    if not snapshot.errors:
        return
    kinds = "  ".join(f"{number} {kind}" for kind, number in sorted(snapshot.kinds.items(), key=lambda item: -item[1]))
    yield _field("errors", (kinds, "red"))
    is_wide = width >= WIDE
    for index, error in enumerate(islice(snapshot.errors, 4 if is_wide else 2)):
        head = f"{error.count} x "
        helps = f"try {error.advice}" if error.advice else ""
        beside = f"  {helps}" if helps and is_wide else ""
        room = max(20, width - LABEL_WIDTH - len(head) - len(beside))
        yield _field("", f"{head}{_cut(error.example, room, glyphs)}{beside}")
        if helps and not is_wide and not index:
            yield _field("", f"    {helps}")


def _rollouts(snapshot: Snapshot, page: Page, width: int, glyphs: Glyphs) -> Iterator[Text]:
    if page.size < 1:
        return
    columns = _columns(width)
    yield Text()
    heads = ("running", "stage", "turns", "tokens", "for", "last activity", "last answer")
    yield Text("".join(_cells(heads, columns, glyphs)), style="underline", no_wrap=True, end="")
    for row in page.rows:
        idle = "now" if row.idle < 1 else f"{duration(row.idle)} ago"
        unknown = "?" if row.turns else "-"
        tokens = unknown if row.tokens is None else count(row.tokens)
        values = (row.name, row.stage, str(row.turns), tokens, duration(row.seconds), idle, row.reply)
        yield Text("".join(_cells(values, columns, glyphs)).rstrip(), no_wrap=True, end="")
    yield _foot(snapshot, page)


def _columns(width: int) -> Sequence[int]:
    """Widths of the columns; negative ones are set to the right."""
    fixed = (10, -6, -8, -9, -15)
    left = max(12, width - sum(map(abs, fixed)))
    return (left, *fixed) if width < WIDE else (min(left // 2, 60), *fixed, left - min(left // 2, 60))


def _cells(values: Sequence[str], columns: Sequence[int], glyphs: Glyphs) -> Iterator[str]:
    for index, (value, size) in enumerate(zip(values, columns, strict=False)):
        if size < 0:
            yield " " * max(1, -size - cell_len(value)) + value
        else:
            # The last answer stands right after a column that is set to the right.
            lead = "  " if index == 6 else ""
            cut = _cut_inside if index == 0 else _cut
            yield lead + set_cell_size(cut(value, size - 1 - len(lead), glyphs), size - len(lead))


def _cut(text: str, width: int, glyphs: Glyphs) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + glyphs.cut


def _cut_inside(text: str, width: int, glyphs: Glyphs) -> str:
    """Without its middle: names that begin alike often differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = text[-(width // 3) :]
    while cell_len(tail) > width // 2:
        tail = tail[1:]
    return set_cell_size(text, max(0, width - 1 - cell_len(tail))) + glyphs.cut + tail


def _foot(snapshot: Snapshot, page: Page) -> Text:
    total = sum(snapshot.stages.values())
    pages = max(1, -(-total // page.size))
    if pages == 1 or not page.rows:
        return Text("Ctrl-C stops the run and keeps what is done", no_wrap=True, end="")
    first = page.number * page.size + 1
    text = f"{first}-{first + len(page.rows) - 1} of {total}"
    if page.has_keys:
        text += f"  page {page.number + 1} of {pages}: n next, p previous"
    return Text(f"{text}  Ctrl-C stops the run", no_wrap=True, end="")
