"""Which request is another attempt at a call that was made before, without I/O.

Only marked requests are matched, since a program may well ask the same again and want another answer. A mark is either
an `Idempotency-Key` header, or an `x-stainless-retry-count` above 0, with which the SDKs of OpenAI and Anthropic send a
request again: the key names the call, the count means the latest one with the same body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

__all__ = ["KEY_HEADER", "Attempt", "KeyReusedError", "Mark", "RetryRecord", "digest_of"]

Call = TypeVar("Call")

KEY_HEADER = b"idempotency-key"
COUNT_HEADER = b"x-stainless-retry-count"

MAX_ATTEMPTS = 64
MAX_BYTES = 1 << 20
"""Of the answers that are kept for one rollout. The latest is kept whatever its size."""
MAX_AGE_S = 600.0
"""How long an answer is kept; SDKs give a call as long as this before they ask again."""


class KeyReusedError(Exception):
    """An idempotency key came again with another body."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a request's headers say about earlier attempts."""

    key: bytes | None = None
    """Names the call; None = no name."""
    is_again: bool = False
    """True when the SDK counts this as a further attempt."""
    is_announced: bool = False
    """True when a further attempt would be marked."""

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> "Mark":
        """The mark in `headers`, whose names are in lower case."""
        key, count = headers.get(KEY_HEADER, b"").strip() or None, headers.get(COUNT_HEADER, b"").strip()
        return cls(key, count.isdigit() and int(count) > 0, key is not None or count.isdigit())


@dataclass(slots=True, eq=False)
class Attempt(Generic[Call]):
    """One call that was made."""

    digest: bytes
    key: bytes | None
    call: Call
    """What the answer is taken from."""
    ended: float | None = None
    """When it ended, by the clock of whoever asks; None = it is under way."""
    is_served: bool = False
    size: int = 0
    """Bytes of the answer."""


class RetryRecord(Generic[Call]):
    """The calls of one rollout that may be asked for again; bounded in number, age and bytes."""

    def __init__(self) -> None:
        self._attempts: list[Attempt[Call]] = []
        """The latest last. Failed ones stay, since they hide earlier ones with the same body."""

    def find(self, mark: Mark, digest: bytes, now: float) -> Attempt[Call] | None:
        """The call that a request asks for again, running or served; None when a new one is to be made.

        Raises:
            KeyReusedError: Its key named a call with another body.
        """
        self._forget(now)
        found = None
        if mark.key is not None:
            found = next((attempt for attempt in reversed(self._attempts) if attempt.key == mark.key), None)
            if found is not None and found.digest != digest:
                raise KeyReusedError
        elif mark.is_again:
            found = next((attempt for attempt in reversed(self._attempts) if attempt.digest == digest), None)
        return found if found is not None and (found.ended is None or found.is_served) else None

    def add(self, mark: Mark, digest: bytes, call: Call) -> Attempt[Call]:
        """Take up a call that is about to be made."""
        attempt = Attempt(digest, mark.key, call)
        self._attempts.append(attempt)
        return attempt

    def end(self, attempt: Attempt[Call], now: float, *, is_served: bool, size: int = 0) -> None:
        """Note how a call ended; `size` are the bytes of its answer."""
        attempt.ended, attempt.is_served, attempt.size = now, is_served, size
        self._forget(now)

    def _forget(self, now: float) -> None:
        kept: list[Attempt[Call]] = []
        num_ended = num_bytes = 0
        has_answer = False
        for attempt in reversed(self._attempts):
            if attempt.ended is not None:
                num_ended += 1
                num_bytes += attempt.size
                is_over = num_ended > MAX_ATTEMPTS or now - attempt.ended > MAX_AGE_S
                if is_over or (num_bytes > MAX_BYTES and attempt.is_served and has_answer):
                    continue
                has_answer = has_answer or attempt.is_served
            kept.append(attempt)
        self._attempts = kept[::-1]


def digest_of(path: str, raw: bytes) -> bytes:
    """Identity of a request: its route and the bytes of its body."""
    digest = blake2b(path.encode("utf-8", "surrogateescape") + b"\n", digest_size=16)
    digest.update(raw)
    return digest.digest()
