"""Which recorded exchange answers a request: each is given once, equal ones in the order of recording. No I/O."""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence

from vfx.clients.tapes.contents import Entry

__all__ = ["LEVELS", "Shelf"]

LEVELS = 3
"""How closely a request may be looked for: the same bytes, the same but for what was masked, but for times as well."""


class Shelf:
    """The exchanges that have not been given yet.

    Args:
        entries: Those of a tape, in the order of recording.
        keys: By the entry's number, where they are not the recorded ones; None = they all are.
        skipped: Numbers of those that are not to be given.
    """

    def __init__(
        self,
        entries: Sequence[Entry] = (),
        *,
        keys: Mapping[int, tuple[str, ...]] | None = None,
        skipped: Collection[int] = (),
    ) -> None:
        self._keys = {entry.number: entry.keys for entry in entries} | dict(keys or {})
        self._given: dict[int, Entry] = {}
        self._left = {entry.number: entry for entry in entries if entry.number not in skipped}
        self._levels = [defaultdict[str, deque[int]](deque) for _ in range(LEVELS)]
        self._counts = [defaultdict[str, int](int) for _ in range(LEVELS)]
        for entry in entries:
            for level, key in enumerate(self._keys[entry.number]):
                self._counts[level][key] += 1
                if entry.number in self._left:
                    self._levels[level][key].append(entry.number)

    def take(self, level: int, key: str) -> Entry | None:
        """The first exchange with this key that has not been given yet; None = there is none, or none any more."""
        numbers = self._levels[level].get(key, ())
        while numbers:
            # Given already by another of its keys, it may still stand here.
            if (entry := self._left.pop(numbers.popleft(), None)) is not None:
                self._given[entry.number] = entry
                return entry
        return None

    def put_back(self, number: int) -> bool:
        """An exchange that was given may be given again, before all others; returns whether it was given."""
        entry = self._given.pop(number, None)
        if entry is None:
            return False
        self._left[number] = entry
        for level, key in enumerate(self._keys[number]):
            self._levels[level][key].appendleft(number)
        return True

    def count(self, level: int, key: str) -> int:
        """How many exchanges with this key were recorded, given or not."""
        return self._counts[level].get(key, 0)
