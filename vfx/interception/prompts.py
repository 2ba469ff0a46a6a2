"""Remembers how the conversations of a rollout begin, so that of each request only what is new is parsed and read.

A beginning is known by a hash of its text, taken at the ends of its last messages: programs that mark where a cache of
the provider should end change the last few messages of what they sent before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from vfx.messages import Message

__all__ = ["Beginning", "PromptMemory"]

MAX_BEGINNINGS = 32
ENDS_PER_REQUEST = 4
# Characters that are copied in one go, during which nothing else of the process can run.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Beginning:
    """The text of a list of messages from its bracket to the end of one of them."""

    length: int
    """In characters."""
    digest: bytes
    hash: Any
    """Where hashing goes on."""
    messages: Sequence[Message]
    """What it reads as, and more."""
    count: int
    """How many of `messages` are of this beginning."""


class PromptMemory:
    """How the requests that one rollout sent last begin. It may be used from several threads."""

    def __init__(self) -> None:
        self._known: tuple[Beginning, ...] = ()
        """The latest first."""

    def find(self, text: str, start: int) -> Beginning | None:
        """The longest beginning that is known of the list at `start` of `text`; None = none is."""
        known = self._known
        found: Beginning | None = None
        running = blake2b(digest_size=16)
        hashed = 0
        for beginning in sorted(known, key=lambda each: each.length):
            if start + beginning.length > len(text):
                break
            _feed(running, text, start + hashed, start + beginning.length)
            hashed = beginning.length
            if running.digest() == beginning.digest:
                found = beginning
        return found

    def extend(
        self, text: str, start: int, found: Beginning | None, new: Sequence[tuple[int, list[Message]]]
    ) -> list[Message]:
        """Remember the list at `start` of `text`, too.

        Args:
            text: A request.
            start: Where its list begins.
            found: What it begins with.
            new: The end of each further item in `text`, and what the item reads as.

        Returns:
            All messages of the list; those of a known beginning are the same objects as before.
        """
        messages = [*found.messages[: found.count]] if found else []
        running = found.hash.copy() if found else blake2b(digest_size=16)
        position = start + (found.length if found else 0)
        latest: list[Beginning] = []
        for number, (end, read) in enumerate(new):
            messages += read
            if number >= len(new) - ENDS_PER_REQUEST:
                _feed(running, text, position, end)
                position = end
                latest.append(Beginning(end - start, running.digest(), running.copy(), messages, len(messages)))
        if latest:
            # Those that this one goes on from share its list, so that the old one is not kept.
            older = [
                replace(each, messages=messages)
                if found and each.messages is found.messages and each.count <= found.count
                else each
                for each in self._known
            ]
            self._known = (*reversed(latest), *older)[:MAX_BEGINNINGS]
        return messages


def _feed(running: Any, text: str, start: int, end: int) -> None:
    for position in range(start, end, AT_ONCE):
        running.update(text[position : min(position + AT_ONCE, end)].encode("utf-8"))
