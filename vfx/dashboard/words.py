"""Numbers, times and foreign texts as people read them."""

from collections.abc import Iterator
from unicodedata import combining, east_asian_width

from vfx.messages import Usage
from vfx.runner.estimates import Estimate

__all__ = ["count", "duration", "estimate", "one_line", "short_duration", "tokens", "wrapped"]


def count(number: int) -> str:
    """At most five characters: 999, 1.2k, 310k, 4.5M."""
    if number < 1000:
        return str(number)
    value = float(number)
    for unit in "kMGT":
        value /= 1000
        if value < 999.5 or unit == "T":
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """At most seven characters: 12 s, 3m 05s, 2h 10m, 5d 03h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    return f"{hours // 24}d {hours % 24:02d}h"


def short_duration(seconds: float) -> str:
    """Like `duration`, but with at most three digits below a minute: 4 ms, 420 ms, 3.61 s, 42.0 s."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    return duration(round(seconds))


def estimate(value: Estimate) -> str:
    """A mean with its interval, as far as they can be told."""
    if value.mean is None:
        return "-"
    text = f"{value.mean:.3f}"
    if value.interval is None:
        return text
    low, high = value.interval
    return f"{text}  (95 % {low:.3f} to {high:.3f})"


def tokens(usage: Usage) -> str:
    """Prompt and answer tokens together; `?` when no provider told any."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return "?"
    return str((usage.input_tokens or 0) + (usage.output_tokens or 0))


def one_line(text: str, width: int = 300) -> str:
    """Foreign text made safe for a terminal: one line, and nothing in it that would move a cursor or set a colour."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 4 * width])
    line = " ".join(plain.split())
    return line if len(line) <= width else line[: max(0, width - 3)] + "..."


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of whole words, each at most `width` columns of a terminal unless a word alone is wider."""
    line, used = "", 0
    for word in text.split(" "):
        cells = sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in word)
        if line and used + 1 + cells > width:
            yield line.rstrip()
            line, used = word, cells
        else:
            line, used = (f"{line} {word}", used + 1 + cells) if line else (word, cells)
    yield line
