"""Says in a few lines how a request differs from the one on a tape that comes nearest. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from vfx.clients.tapes.matching import CONVERSATIONS, mask, mask_times

__all__ = ["difference"]

EXCERPT_CHARS = 120
LEAD_CHARS = 30
"""Of an excerpt, what both have in common before they differ."""
MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class _Difference:
    place: str
    recorded: str
    asked: str


def difference(
    recorded: bytes, asked: bytes, *, recorded_at: float, asked_at: float, ignore: Sequence[re.Pattern[str]] = ()
) -> str:
    """Where two requests begin to differ, and what stands there in each.

    Args:
        recorded: The body of the one.
        asked: The body of the other.
        recorded_at: When the one was asked, in seconds since the epoch.
        asked_at: When the other was.
        ignore: What may differ, besides what is masked in any case.

    Returns:
        The place on the first line, such as `message 2 (user)`, and both texts on the next two.
    """
    found = next(_differences(_Side(recorded, recorded_at, ignore), _Side(asked, asked_at, ignore)), None)
    if found is None:
        return "its form: what is masked stands elsewhere"
    return f"{found.place}\n  recorded: {found.recorded}\n  asked:    {found.asked}"


class _Side:
    """One of the two requests."""

    def __init__(self, raw: bytes, at: float, ignore: Sequence[re.Pattern[str]]) -> None:
        try:
            self.body: Any = mask(json.loads(raw))[0]
        except (ValueError, RecursionError):
            self.body = raw.decode("utf-8", "replace")
        self._at = at
        self._ignore = ignore

    def plain(self, name: str, value: Any) -> str:
        """A value as it is compared and shown, `name` being what it is called where it stands."""
        head = "" if isinstance(value, str) else f"{json.dumps(name)}:"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text = mask_times(f"{head}{text}", self._at)
        for pattern in self._ignore:
            text = pattern.sub("", text)
        return text.removeprefix(head)


def _differences(left: _Side, right: _Side) -> Iterator[_Difference]:
    old, new = left.body, right.body
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield from _in_value(left, right, "the body", "", old, new, 0)
        return
    before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    # The conversation first: it is what people look for.
    names = sorted({*before, *after}, key=lambda name: (name not in CONVERSATIONS, name))
    for name in names:
        if name in CONVERSATIONS and isinstance(before.get(name), list) and isinstance(after.get(name), list):
            yield from _in_conversation(left, right, before[name], after[name])
        else:
            yield from _in_value(left, right, name, name, before.get(name), after.get(name), 0)


def _in_conversation(left: _Side, right: _Side, old: Sequence[Any], new: Sequence[Any]) -> Iterator[_Difference]:
    for number, (before, after) in enumerate(zip(old, new, strict=False), start=1):
        yield from _in_value(left, right, f"message {number} ({_role(after)})", "", before, after, 0)
    if len(old) != len(new):
        place = f"message {min(len(old), len(new)) + 1}"
        shown = [_excerpt(_summary(items, len(other))) for items, other in ((old, new), (new, old))]
        yield _Difference(place, shown[0], shown[1])


def _role(item: Any) -> str:
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, dict) else {}
    return str(fields.get("role") or fields.get("type") or "unknown")


def _summary(items: Sequence[Any], shared: int) -> str:
    if len(items) <= shared:
        return f"none, the conversation has {len(items)} messages"
    return json.dumps(items[shared], ensure_ascii=False)


def _in_value(
    left: _Side, right: _Side, place: str, name: str, old: Any, new: Any, depth: int
) -> Iterator[_Difference]:
    if depth < MAX_DEPTH and isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        for key in sorted({*before, *after}):
            yield from _in_value(left, right, f"{place}, {key}", key, before.get(key), after.get(key), depth + 1)
        return
    if depth < MAX_DEPTH and isinstance(old, list) and isinstance(new, list):
        one, other = cast("list[Any]", old), cast("list[Any]", new)
        for number in range(max(len(one), len(other))):
            before, after = (items[number] if number < len(items) else None for items in (one, other))
            yield from _in_value(left, right, f"{place} {number + 1}", name, before, after, depth + 1)
        return
    recorded, asked = left.plain(name, old), right.plain(name, new)
    if recorded != asked:
        yield _Difference(place, *_excerpts(recorded, asked))


def _excerpts(old: str, new: str) -> tuple[str, str]:
    shared = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        shared += 1
    start = max(0, shared - LEAD_CHARS)
    cut: Callable[[str], str] = lambda text: ("…" if start else "") + _excerpt(text[start:])  # noqa: E731
    return cut(old), cut(new)


def _excerpt(text: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= EXCERPT_CHARS else line[:EXCERPT_CHARS] + "…"
