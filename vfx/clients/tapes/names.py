"""Names of a rollout that was recorded, such as its folder, and what they are called in the one that asks now. Pure."""

import re
from collections.abc import Iterator, Mapping

__all__ = ["Names"]

# A number by itself may be anything: it is a name only where one is written.
_BEFORE_NUMBER = re.compile(r"(?:127\.0\.0\.1:|localhost:|session_id\\*\" ?: ?|[Ss]ession (?:ID )?)$")
_LONGEST_BEFORE = 24


class Names:
    """What takes the place of each name in a text.

    Args:
        names: Old and new; at least one.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        # The longest first: one may be the beginning of another. A slash may stand behind the letter of an escape.
        spelt = (
            ("(?<![0-9A-Za-z])" if old[:1].isalnum() else "") + re.escape(old)
            for old in sorted(names, key=len, reverse=True)
        )
        self._pattern = re.compile(rf"(?:{'|'.join(spelt)})(?![0-9A-Za-z])")

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Each name in `text`: where it starts and ends, and what takes its place."""
        for found in self._pattern.finditer(text):
            start, end = found.span()
            old = found[0]
            if not old.isdigit() or _BEFORE_NUMBER.search(text, max(0, start - _LONGEST_BEFORE), start):
                yield start, end, self._names[old]

    def tell(self, text: str) -> str:
        """`text` with the new names."""
        pieces: list[str] = []
        position = 0
        for start, end, new in self.find(text):
            pieces += [text[position:start], new]
            position = end
        return "".join([*pieces, text[position:]]) if pieces else text
