"""What pydantic finds wrong, said in plain sentences and with the paths that users know."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vfx.cli.schema import Path, Schema
from vfx.cli.values import Kind, kind_of, shown, tags_of

__all__ = ["Finding", "findings"]

Finding = tuple[Path, str, str]
"""The option; where inside its value, or ""; and what is wrong there."""

_BOUNDS = {
    "greater_than_equal": ("expected at least {}", "ge"),
    "greater_than": ("expected more than {}", "gt"),
    "less_than_equal": ("expected at most {}", "le"),
    "less_than": ("expected less than {}", "lt"),
    "multiple_of": ("expected a multiple of {}", "multiple_of"),
    "string_pattern_mismatch": ("expected text that matches {}", "pattern"),
}
_LENGTHS = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "entry"),
    "too_long": ("at most", "max_length", "entry"),
}
_PLURALS = {"character": "characters", "entry": "entries"}


def findings(error: ValidationError, schema: Schema, prefix: Path = ()) -> Iterator[Finding]:
    """Each thing that is wrong; the members of a union that all refuse one value count once.

    Args:
        error: What pydantic raised.
        schema: The options, narrowed as they were for the validation.
        prefix: The path of the group that was validated.
    """
    seen: set[tuple[Path, str]] = set()
    # The input is left out of pydantic's own texts and URLs are not wanted at all.
    for details in error.errors(include_url=False):
        place = _place(schema, (*prefix, *details["loc"]))
        if place is not None and place not in seen:
            seen.add(place)
            yield *place, _sentence(details, place[0])


def _place(schema: Schema, location: Sequence[int | str]) -> tuple[Path, str] | None:
    """The option that a location leads to, without the tags that pydantic puts into it.

    Returns:
        None for a complaint of a variant that was not chosen.
    """
    group = schema.root
    for index, part in enumerate(location):
        field = group.fields.get(str(part))
        if field is None:
            if part in group.variants or part == group.model.__name__:
                continue
            if part in [model.__name__ for model in group.kind.models]:
                return None
            return group.path, "".join(_index(step) for step in location[index:])
        inner = schema.group(field)
        if inner is None:
            rest = location[index + 1 :]
            if field.kind.name == "map" and rest:
                return (*field.path, str(rest[0])), "".join(_index(step) for step in rest[1:])
            return field.path, "".join(_index(step) for step in _untagged(field.kind, rest))
        group = inner
    return group.path, ""


def _untagged(kind: Kind, steps: Sequence[int | str]) -> Sequence[int | str]:
    """A way into a value without the tags, which pydantic puts behind an index or a name where models are chosen."""
    if not steps:
        return steps
    step, rest = steps[0], steps[1:]
    if kind.name == "list" and kind.item is not None:
        return (step, *_untagged(kind.item, rest))
    if kind.name != "group":
        return steps
    if kind.tag is not None:
        model = next((model for model in kind.models if step in tags_of(model, kind.tag or "")), None)
        return _untagged(Kind("group", models=(model,)), rest) if model else steps
    field = kind.models[0].model_fields.get(str(step))
    return steps if field is None else (step, *_untagged(kind_of(field.annotation), rest))


def _index(step: int | str) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    # A step such as `function-after[...]` or `str` is pydantic's name for a member of a union.
    return f".{step}" if step.isidentifier() and step not in ("str", "int", "float", "bool", "none") else ""


def _sentence(details: ErrorDetails, path: Path) -> str:
    kind, context = details["type"], details.get("ctx", {})
    found = _found(details["input"], path)
    if kind in _BOUNDS:
        text, bound = _BOUNDS[kind]
        limit = context[bound]
        return f"{text.format(format(limit, 'g') if isinstance(limit, float) else limit)}, got {found}"
    if kind in _LENGTHS:
        side, bound, unit = _LENGTHS[kind]
        count = context[bound]
        return f"expected {side} {count} {unit if count == 1 else _PLURALS[unit]}, got {_length(details['input'])}"
    if kind in ("missing", "union_tag_not_found"):
        return "is required"
    if kind == "extra_forbidden":
        return "unknown option"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"]) or "is not valid"
    text = details["msg"].splitlines()[0]
    return f"{re.sub('^Input should be ', 'expected ', text)}, got {found}"


def _found(value: Any, path: Path) -> str:
    # Headers are where people put secrets, and a table may hold any.
    if path[:2] == ("client", "headers") or ("tools" in path[1:3] and "headers" in path):
        return "a value that is not shown"
    return str(value) if isinstance(value, int | float) else shown(value)


def _length(value: Any) -> str:
    try:
        return str(len(value))
    except TypeError:
        return "none"
