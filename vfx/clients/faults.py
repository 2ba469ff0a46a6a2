"""Which faults there are to inject, and which of them a request meets. Pure: no shared stream of random numbers.

What a request meets follows from the seed, its content, how often that content was asked before, and the attempt, so
that a run meets the same faults again in whatever order its calls come.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

__all__ = ["KINDS", "Asked", "Faults", "checked_shares", "status_of"]

NAMED = ("cut", "refused", "slow")
KINDS = "a status from 400 to 599 such as 429 or 500, cut, refused, slow"
"""The kinds of fault, for people."""

MAX_KNOWN = 200_000
"""Contents whose number of askings is remembered; beyond it the oldest are forgotten and count as new."""


def checked_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares with their kinds in lower case and in order, which no longer depends on how they were given.

    Raises:
        ValueError: There is no such fault, or the shares are none.
    """
    named = {kind.lower(): share for kind, share in shares.items()}
    for kind, share in named.items():
        if kind not in NAMED and status_of(kind) is None:
            raise ValueError(f"there is no fault {kind!r}, expected {KINDS}")
        if not 0 <= share <= 1:
            raise ValueError(f"the share of {kind} is {share:g}, expected a number from 0 to 1; the faults are {KINDS}")
    # Shares that people add up to 1 need not do so to the last bit.
    if (total := sum(named.values())) > 1 + 1e-9:
        raise ValueError(f"the shares add up to {total:g}, expected at most 1 in all; the faults are {KINDS}")
    return dict(sorted(named.items()))


def status_of(kind: str) -> int | None:
    """The HTTP status that a kind of fault stands for; None when it stands for none."""
    return int(kind) if len(kind) == 3 and kind.isascii() and kind.isdigit() and kind[0] in "45" else None


@dataclass(frozen=True, slots=True)
class Asked:
    """One call, by what decides about its faults."""

    identity: bytes

    def chance(self, attempt: int, purpose: Literal["fault", "wait", "cut"]) -> float:
        """A number within [0, 1), always the same for the same arguments."""
        text = b"%b:%d:%b" % (self.identity, attempt, purpose.encode())
        return int.from_bytes(blake2b(text, digest_size=6).digest()) / 2**48


class Faults:
    """The faults of one run.

    Args:
        shares: As `checked_shares` gives them.
        seed: Another one gives other requests faults.
    """

    def __init__(self, shares: Mapping[str, float], seed: int) -> None:
        self._shares = shares
        self._seed = seed
        self._askings: dict[bytes, int] = {}

    def digest(self, method: str, path: str, body: bytes) -> bytes:
        """Identity of a request's content. Large ones take time, so any thread may ask."""
        digest = blake2b(f"{self._seed} {method} {path}\n".encode("utf-8", "surrogateescape"), digest_size=16)
        digest.update(body)
        return digest.digest()

    def ask(self, digest: bytes) -> Asked:
        """Take up a call whose content has that digest."""
        number = self._askings.pop(digest, 0)
        # Put at the end again: what is asked often is not forgotten.
        self._askings[digest] = number + 1
        if len(self._askings) > MAX_KNOWN:
            del self._askings[next(iter(self._askings))]
        return Asked(b"%b:%d" % (digest, number))

    def find(self, asked: Asked, attempt: int) -> str | None:
        """The kind of fault that an attempt at a call meets; None = it is left alone.

        Args:
            asked: The call.
            attempt: Number of the request that is sent for it, from 0.
        """
        point = asked.chance(attempt, "fault")
        for kind, share in self._shares.items():
            if point < share:
                return kind
            point -= share
        return None
