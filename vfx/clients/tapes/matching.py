"""What makes two requests the same question, although they were asked in different runs. Pure.

Of what a program sends, its rollout's folder, ids, ports and the time differ from run to run and are masked; numbers,
and dates that are not today's, are what a question is about and never are. What is masked keeps its identity: the same
folder is `<dir 1>` wherever it stands, so that an answer about one can be told again about another.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

__all__ = ["MASKS", "Form", "digest", "forms", "mask", "mask_times", "translation"]

MASKS = 1
"""Number of these rules; a tape whose keys were made by others is read anew."""
KEY_BYTES = 16

TRACKING = frozenset(
    {"client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "session_id", "thread_id", "user"}
)
"""Fields of a request that say who asks, not what."""
CONVERSATIONS = frozenset({"input", "messages"})
_ITEM_IDS = ("call_id", "id", "tool_call_id", "tool_use_id")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August")
_LAST_MONTHS = ("September", "October", "November", "December")
WINDOW_CHARS = 512
SHORTEST_MASKED = 9
# The last line of test runners.
_COUNTED = r"(?:Ran|passed|failed|skipped|errors?|warnings?)\b[^\n]{0,60}?"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One thing that differs from run to run.

    Patterns begin with a literal wherever they can, since the search for one is many times as fast as any other.
    """

    name: str
    pattern: re.Pattern[str]
    """Its group `it` is masked."""
    before: re.Pattern[str] | None = None
    """What has to stand before; it belongs to what is masked, if that is told. None = nothing."""
    is_told: bool = True
    """False for what an answer can't be about, such as how long something took."""


_HEX16 = "[0-9a-f]{16}"
_RULES = (
    # As `runtimes` names them; programs also write the folder with dashes for slashes.
    _Rule("dir", re.compile(rf"(?P<it>vfx-{_HEX16}/{_HEX16})"), re.compile(r"(?:/[\w.@+~%-]+)*?/$")),
    _Rule("dir", re.compile(rf"(?P<it>vfx-{_HEX16}-{_HEX16})"), re.compile(r"(?<!\w)-[\w.@+~%-]*$")),
    _Rule("run", re.compile(rf"(?P<it>vfx-{_HEX16})(?![0-9a-f])")),
    _Rule(
        "uuid",
        re.compile(r"(?P<it>-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?![0-9a-f])"),
        re.compile(r"(?<![0-9a-f])[0-9a-f]{8}$"),
    ),
    _Rule("temp", re.compile(r"/(?P<it>tmp(?:[a-z0-9_]{8}|\.[A-Za-z0-9]{10}))(?![\w.])")),
    _Rule("temp", re.compile(r"(?P<it>pytest-of-[\w.-]+/pytest-\d+)(?!\d)")),
    _Rule("port", re.compile(r"127\.0\.0\.1:(?P<it>\d{4,5})(?!\d)")),
    _Rule("port", re.compile(r"localhost:(?P<it>\d{4,5})(?!\d)")),
    _Rule("key", re.compile(r"API_KEY=(?P<it>[\w-]{20,})")),
    _Rule("session", re.compile(r"session ID (?P<it>\d{4,})(?!\d)")),
    _Rule("session", re.compile(r"\"session_id\": ?(?P<it>\d{4,})(?!\d)")),
    _Rule("chunk", re.compile(r"Chunk ID: (?P<it>[0-9a-f]+)"), is_told=False),
    _Rule("seconds", re.compile(r"Wall time: (?P<it>[\d.]+)(?= seconds)"), is_told=False),
    _Rule("seconds", re.compile(r" in (?P<it>\d+\.\d+)(?=s)"), re.compile(_COUNTED + r"$"), is_told=False),
    _Rule("seconds", re.compile(r"real\t(?P<it>\d+m[\d.]+)(?=s)"), is_told=False),
    _Rule("seconds", re.compile(r"user\t(?P<it>\d+m[\d.]+)(?=s)"), is_told=False),
    _Rule("seconds", re.compile(r"sys\t(?P<it>\d+m[\d.]+)(?=s)"), is_told=False),
)


@dataclass(frozen=True, slots=True)
class Form:
    """A request as it is compared."""

    key: str
    text: str
    """The body as compact JSON, its names in order, with what differs from run to run masked."""
    found: tuple[str, ...] = ()
    """What was masked and an answer may be about, in order; as many and in the same places in every equal request."""


class _Masker:
    """Masks one request."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self.found: list[str] = []

    def request(self, body: Any) -> Any:
        if not isinstance(body, dict):
            return self.value(body)
        fields = cast("dict[str, Any]", body)
        return {
            name: self._conversation(fields[name]) if name in CONVERSATIONS else self.value(fields[name])
            for name in sorted(fields)
            if name not in TRACKING
        }

    def _conversation(self, items: Any) -> Any:
        if not isinstance(items, list):
            return self.value(items)
        return [self._item(item, depth=2) for item in cast("list[Any]", items)]

    def _item(self, item: Any, depth: int) -> Any:
        """A message or a part of one. What stands deeper is content, whose ids are its own affair."""
        if not isinstance(item, dict):
            return self.value(item)
        fields, masked = cast("dict[str, Any]", item), dict[str, Any]()
        for name in sorted(fields):
            value = fields[name]
            if name in _ITEM_IDS and isinstance(value, str):
                masked[name] = self._name("id", value)
            elif depth > 1 and name in ("content", "tool_calls") and isinstance(value, list):
                masked[name] = [self._item(part, depth - 1) for part in cast("list[Any]", value)]
            else:
                masked[name] = self.value(value)
        return masked

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {self.text(name): self.value(fields[name]) for name in sorted(fields)}
        return value

    def text(self, text: str) -> str:
        if len(text) < SHORTEST_MASKED:
            return text
        for rule in _RULES:
            text = self._masked(rule, text)
        return text

    def _masked(self, rule: _Rule, text: str) -> str:
        pieces: list[str] = []
        end = 0
        for found in rule.pattern.finditer(text):
            start = found.start("it")
            if rule.before is not None:
                before = rule.before.search(text, max(end, found.start() - WINDOW_CHARS), found.start())
                if before is None:
                    continue
                start = before.start() if rule.is_told else start
            pieces += [text[end:start], self._mask(rule, text[start : found.end("it")], found["it"])]
            end = found.end("it")
        return "".join([*pieces, text[end:]]) if pieces else text

    def _mask(self, rule: _Rule, whole: str, it: str) -> str:
        if not rule.is_told:
            return f"<{rule.name}>"
        self.found.append(whole)
        # A folder is the same one below whatever name of its parent, and with dashes for slashes.
        identity = it.replace("/", "-") if rule.name == "dir" else whole
        return self._name(rule.name, identity)

    def _name(self, kind: str, identity: str) -> str:
        name = self._names.get((kind, identity))
        if name is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            name = self._names[kind, identity] = f"<{kind} {number}>"
        return name


def mask(body: Any) -> tuple[Any, tuple[str, ...]]:
    """A parsed request without what differs from run to run, and what of that an answer may be about, in order.

    Dates and times are left; see `mask_times`.
    """
    masker = _Masker()
    return masker.request(body), tuple(masker.found)


def mask_times(text: str, at: float) -> str:
    """`text` with `<time>` for every date and time of the day of `at`, the one before and the one after.

    Other days are not masked: a date that is not today's is part of a question.

    Args:
        text: Plain, or as JSON writes it.
        at: When it was written, in seconds since the epoch.
    """
    masked = text
    for pattern in _times(datetime.fromtimestamp(at, UTC).date()):
        masked = pattern.sub(_time, masked)
    return masked if masked is text else _WEEKDAY.sub("<time>", masked)


def _time(found: re.Match[str]) -> str:
    start = found.start()
    is_in_number = start > 0 and found.string[start - 1] in "0123456789."
    return found[0] if is_in_number else "<time>"


_WEEKDAY = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? <time>")
_CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"
_ZONE = r"(?: ?(?:Z|[A-Z]{3,4}|[+-]\d\d:?\d\d)(?![A-Za-z0-9]))?"


@lru_cache(maxsize=64)
def _times(day: date) -> tuple[re.Pattern[str], ...]:
    clock = f"{_CLOCK}{_ZONE}"
    spelt: list[str] = []
    for each in (day + timedelta(days=shift) for shift in (-1, 0, 1)):
        month, year = (*_MONTHS, *_LAST_MONTHS)[each.month - 1], each.year
        name, number = rf"{month[:3]}(?:{month[3:]})?", rf" ?0?{each.day}"
        spelt += [
            rf"{each:%Y-%m-%d}(?:[T _]{clock})?(?!\d)",
            rf"{each:%Y/%m/%d}(?: {clock})?(?!\d)",
            rf"{each:%m/%d/%Y}(?: {clock})?(?!\d)",
            rf"{each:%Y%m%d}[T_-]?\d{{6}}(?!\d)",
            rf"{name} {number}(?:,? {year}(?!\d)(?:,? {clock})?|,? {clock}(?: {year}(?!\d))?)",
            rf"{each.day:02} {name},? {year}(?: {clock})?(?!\d)",
        ]
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    starts = sorted({str(midnight + shift * 43_200)[:5] for shift in range(-2, 5)})
    spelt += [rf"{start}\d{{5}}(?:\d{{3}}){{0,3}}(?:\.\d+)?(?!\d)" for start in starts]
    return tuple(map(re.compile, spelt))


def forms(
    method: str, path: str, raw: bytes, at: float, ignore: Sequence[re.Pattern[str]] = ()
) -> tuple[Form, Form] | None:
    """A request as it is compared, with dates and times as they are and with today's masked.

    Args:
        method: Of the request.
        path: Of the request, with its query.
        raw: Its body.
        at: When it was made, in seconds since the epoch.
        ignore: What else may differ; matched against the masked JSON.

    Returns:
        None when the body is no JSON, so that only the same bytes are the same request.
    """
    try:
        body, found = mask(json.loads(raw)) if raw else (None, ())
    except (ValueError, RecursionError):
        return None
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for pattern in ignore:
        text = pattern.sub("", text)
    timeless = mask_times(text, at)
    key = digest(method, path, _encode(text))
    timeless_key = key if timeless == text else digest(method, path, _encode(timeless))
    return Form(key, text, found), Form(timeless_key, timeless, found)


def digest(method: str, path: str, body: bytes) -> str:
    """What stands for a request: equal for equal ones."""
    head = json.dumps([method, path]).encode()
    return blake2b(head + b"\0" + body, digest_size=KEY_BYTES).hexdigest()


def _encode(text: str) -> bytes:
    # JSON may hold lone surrogates.
    return text.encode("utf-8", "surrogatepass")


def translation(recorded: Sequence[str], asked: Sequence[str]) -> Mapping[str, str]:
    """What each name in one request is called in another one that is equal to it but for what was masked.

    Args:
        recorded: What was masked in the one.
        asked: What was masked in the other.

    Returns:
        Only those that differ; of a name that is called in two ways, the first. None of them if it can't be told.
    """
    if len(recorded) != len(asked):
        return {}
    pairs = reversed([*zip(recorded, asked, strict=True)])
    return {old: new for old, new in pairs if old != new}
