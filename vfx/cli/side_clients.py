"""What is wrong with the clients of judges and users, though each of their options is right by itself."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from vfx.cli.given import Given
from vfx.cli.layers import Precedence
from vfx.cli.schema import Path, dotted
from vfx.errors import Mistake
from vfx.redaction import MASK

__all__ = ["side_client_mistakes"]

_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def side_client_mistakes(given: Given) -> Iterator[Mistake]:
    """Keys in the place of their variable's name, and what was masked when a run was saved."""
    for path, entry in given.values.items():
        for steps, text in _texts(entry.value):
            place = [*path, *steps]
            if path[0] != "taskset" or "client" not in place[1:-1]:
                continue
            name = dotted(path) + "".join(step if step.startswith("[") else f".{step}" for step in steps)
            source = entry.source
            where = source.at(name) if source.precedence is Precedence.FILE else f"{source.name} {name}"
            option = place[place.index("client", 1) + 1]
            if option == "api_key_var" and text and not _VARIABLE.fullmatch(text):
                yield Mistake("expected the name of an environment variable; a key itself is not taken", where)
            # One that is an option of its own is told of as those of the run's client are.
            elif option in ("base_url", "headers") and MASK in text and (steps or text != MASK):
                hint = "give it again, with `@ FILE` or by a flag"
                yield Mistake("was masked when it was saved", where, hint)


def _texts(value: Any, steps: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in a value, with the way to it."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, Mapping):
        for key, entry in cast("Mapping[str, Any]", value).items():
            yield from _texts(entry, (*steps, key))
    elif isinstance(value, list):
        for index, entry in enumerate(cast("list[Any]", value)):
            yield from _texts(entry, (*steps, f"[{index}]"))
