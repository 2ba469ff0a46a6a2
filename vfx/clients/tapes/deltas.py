"""Texts that begin and end alike, kept as what differs: a conversation is sent whole with each of its turns. Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["Beginnings", "Delta", "common_start", "delta"]

SMALL_STEP_CHARS = 32
LARGE_STEP_CHARS = 4096
MAX_BEGINNINGS = 200_000


@dataclass(frozen=True, slots=True)
class Delta:
    """A text as what it does not share with another one."""

    start: int
    """Characters that it begins with as the other does."""
    end: int
    """Characters that it ends with as the other does, none of them counted before."""
    middle: str

    def apply(self, base: str) -> str:
        """The text, from the one that it was compared with.

        Raises:
            ValueError: `base` is too short to be that one.
        """
        if min(self.start, self.end) < 0 or self.start + self.end > len(base):
            raise ValueError("it is shorter than what was left out")
        return base[: self.start] + self.middle + base[len(base) - self.end :]


def delta(base: str, text: str) -> Delta:
    """What of `text` is not in `base`."""
    start = common_start(base, text)
    end = _common_end(base, text, min(len(base), len(text)) - start)
    return Delta(start, end, text[start : len(text) - end])


def common_start(left: str, right: str) -> int:
    """How many characters two texts begin alike with."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(left: str, right: str, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if left[len(left) - middle : len(left) - low] == right[len(right) - middle : len(right) - low]:
            low = middle
        else:
            high = middle - 1
    return low


class Beginnings:
    """Finds which of many texts begins most like another one. Costs one pass over each text, however many there are."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[bytes, int] = OrderedDict()

    def add(self, number: int, group: str, text: str) -> None:
        """Remember a text by a number; the latest one is found of those that begin alike."""
        for mark in _marks(group, text):
            self._numbers[mark] = number
            self._numbers.move_to_end(mark)
        while len(self._numbers) > MAX_BEGINNINGS:
            self._numbers.popitem(last=False)

    def nearest(self, group: str, text: str) -> int | None:
        """The number of the text in `group` that begins most like `text`; None = none begins alike."""
        found = None
        for mark in _marks(group, text):
            if mark not in self._numbers:
                break
            found = self._numbers[mark]
        return found


def _marks(group: str, text: str) -> Iterator[bytes]:
    """Digests of what the text begins with, in growing lengths."""
    state = blake2b(f"{group}\0".encode(), digest_size=16)
    position = 0
    while position < len(text):
        step = SMALL_STEP_CHARS if position < LARGE_STEP_CHARS else LARGE_STEP_CHARS
        if position + step > len(text):
            return
        state.update(text[position : position + step].encode("utf-8", "surrogatepass"))
        position += step
        yield state.digest()
