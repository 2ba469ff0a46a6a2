"""Comparing what a model wrote with what was expected."""

import re
from difflib import SequenceMatcher

__all__ = ["contains_word", "numbers", "similarity"]

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def similarity(text: str, expected: str) -> float:
    """How alike two texts are: twice the matching characters over all characters, from 0 to 1; 1 for two empty texts.

    Source: Ratcliff and Obershelp's "gestalt pattern matching", as in `difflib`, without its shortcut for long texts.
    """
    return SequenceMatcher(None, text, expected, autojunk=False).ratio()


def contains_word(text: str, word: str) -> bool:
    """True when `word` stands in `text` on its own, not as part of a longer word or number; case doesn't matter."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w|[.,]\d)", text, re.IGNORECASE) is not None


def numbers(text: str) -> list[float]:
    """The numbers in `text` in order; commas inside are thousands separators."""
    return [float(found.replace(",", "")) for found in _NUMBER.findall(text)]
