"""When a call may be sent again: pure arithmetic on what the provider said, and the pace all calls to it share."""

import math
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

__all__ = ["RETRIED", "NotConnectedError", "Pace", "asked_wait", "backoff", "spread"]

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

FIRST_BACKOFF_S = 0.5


class NotConnectedError(Exception):
    """There was no connection, or it broke before the answer was there: the request may be sent again."""

    def __init__(self, message: str, *, fatal: str | None = None, is_final: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal
        """Why every other call would fail too; None = it may be just this one."""
        self.is_final = is_final
        """True when sending again is of no use."""


def asked_wait(headers: Sequence[tuple[str, str]], now: float) -> float | None:
    """How long the provider asked to wait, in seconds from `now`; None when it did not say, or not in a known form.

    Args:
        headers: Of its answer.
        now: Seconds since the epoch, for a `Retry-After` that is a date.

    Source:
        RFC 9110, section 10.2.3; `retry-after-ms` as OpenAI's gateways send it.
    """
    named = {name.lower(): value.strip() for name, value in headers}
    milliseconds = _number(named.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = named.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def backoff(failures: int, longest: float, jitter: float, *, first: float | None = None) -> float:
    """Seconds to wait after that many failures in a row, when nobody said how long.

    Args:
        failures: At least 1.
        longest: Bound in seconds.
        jitter: Within [0, 1]; 1 makes it a quarter shorter.
        first: Seconds after the first failure; None = the usual 0.5.
    """
    base = min((FIRST_BACKOFF_S if first is None else first) * 2.0 ** min(failures - 1, 32), longest)
    return base * (1 - 0.25 * jitter)


def spread(wait: float, jitter: float) -> float:
    """A wait no shorter than `wait`, at most 20 % + 0.4 s longer, so that those who wait together don't fire together.

    The 0.1 s up to the promised 20 % + 0.5 s is for a busy event loop.
    """
    return wait + jitter * (0.2 * wait + 0.4)


class Pace:
    """Holds back every call to an endpoint that asked one of them to wait."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self.reason = ""
        """Why calls are held back."""
        self.successes = 0
        """Answers since the run began that were not a refusal for the rate."""

    def hold(self, until: float, reason: str) -> None:
        """Let nothing through before `until`, in seconds since the epoch."""
        if until > self._not_before:
            self._not_before = until
            self.reason = reason

    def wait(self, now: float) -> float:
        """Seconds for which calls are held back from `now` on; 0 = they may go."""
        return max(0.0, self._not_before - now)
