"""Names in braces that a command line may hold. Other braces, as in JSON, stay as they are; `{{name}}` is `{name}`."""

import difflib
import re
from collections.abc import Collection, Mapping

from vfx.errors import Mistake

__all__ = ["fill", "used_names", "wrong_names"]

_NAME = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` that `values` has."""

    def replaced(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        return f"{{{escaped}}}" if escaped else values.get(name, match[0])

    return _NAME.sub(replaced, text)


def used_names(text: str) -> set[str]:
    """The names that stand in single braces."""
    return {name for _, name in _NAME.findall(text) if name}


def wrong_names(text: str, known: Collection[str], where: str) -> list[Mistake]:
    """What to say about names in `text` that nothing is filled in for."""
    mistakes: list[Mistake] = []
    for name in sorted(used_names(text) - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(f'{{{k}}}' for k in sorted(known))}"
        mistakes.append(Mistake(f"nothing is filled in for {{{name}}}", where, f"{hint}; {{{{{name}}}}} stays as text"))
    return mistakes
