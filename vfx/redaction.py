"""Secrets that this process knows, and the one way to keep them out of text that is stored, logged or shown.

The set only grows and belongs to the process: a secret stays one whichever run used it.
"""

import re
from urllib.parse import quote

__all__ = ["conceal", "redact"]

MASK = "***"
# Shorter values are words of the language as often as secrets; masking them would garble messages.
SHORTEST_SECRET = 4

_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def conceal(*secrets: str | None) -> None:
    """Remember `secrets`, so that `redact` masks them and their percent-encoded forms from now on."""
    global _pattern
    known = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""), repr(secret)[1:-1])}
    known = {form for form in known if len(form) >= SHORTEST_SECRET}
    if known <= _secrets:
        return
    _secrets.update(known)
    # The longest first, so that a secret which contains another is masked whole.
    _pattern = re.compile("|".join(map(re.escape, sorted(_secrets, key=len, reverse=True))))


def redact(text: str) -> str:
    """`text` with every secret known so far replaced by `***`."""
    return _pattern.sub(MASK, text) if _pattern else text
