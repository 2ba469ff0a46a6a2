"""What kind of value an option takes: read from its type hint, and applied to text and to what TOML gives.

Text is decoded as the kind says and never guessed at. TOML has types of its own, which have to fit.
"""

import datetime
import difflib
import json
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, NewType, NoReturn, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = ["Kind", "Misfit", "check", "decode", "describe", "kind_of", "settled", "shown", "tags_of", "unset"]

_WHOLE = re.compile(r"[+-]?\d+(_\d+)*")
_LISTS = (list, tuple, set, frozenset, Sequence)
_MAPS = (dict, Mapping)
_MAX_SHOWN = 60
# More is no setting, and from 4300 on Python refuses to convert them.
_MAX_DIGITS = 100


KindName = Literal[
    "text", "path", "whole number", "number", "boolean", "choice", "list", "map", "group", "open", "other"
]


class Misfit(ValueError):  # noqa: N818 - the user's error and not the program's
    """A value is not of the kind that is expected; the text says what was expected and found."""

    def __init__(self, text: str, inside: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.inside = inside
        """All that is wrong in a table or list: where, such as `[1].name`, and what."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What an option takes."""

    name: KindName
    """`open`: anything; `other`: a type that only pydantic knows how to read."""
    is_optional: bool = False
    """Whether None is a value."""
    choices: tuple[Any, ...] = ()
    """All values there are; beside a whole number, the words that may stand for one."""
    item: "Kind | None" = None
    """Of each entry of a list or map."""
    models: tuple[type[BaseModel], ...] = ()
    """A group's model, or the models it has to choose from."""
    tag: str | None = None
    """Name of the field that chooses; None when there is one model."""


OTHER = Kind("other")
# A boolean is an int to Python, so it comes first.
_SCALARS: tuple[tuple[type, KindName], ...] = (
    (bool, "boolean"),
    (int, "whole number"),
    (float, "number"),
    (str, "text"),
    (PurePath, "path"),
)


def kind_of(hint: Any, discriminator: str | None = None) -> Kind:
    """The kind of a type hint.

    Args:
        hint: As pydantic keeps it.
        discriminator: The field that tells the members of a union of models apart; None = `type`.
    """
    while not isinstance(hint, type):
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *extras = get_args(hint)
            named = (extra.discriminator for extra in extras if isinstance(extra, FieldInfo))
            discriminator = next((name for name in named if isinstance(name, str)), discriminator)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            hint = hint.__value__
        else:
            break
    if hint is Any or isinstance(hint, TypeVar):
        return Kind("open", is_optional=True)
    origin = get_origin(hint) or hint
    if origin is Union or origin is types.UnionType:
        return _union_kind(get_args(hint), discriminator)
    if origin is Literal:
        return Kind("choice", choices=get_args(hint))
    if origin in _LISTS or origin in _MAPS:
        return _container_kind(origin, get_args(hint))
    return _plain_kind(hint)


def _plain_kind(hint: Any) -> Kind:
    if not isinstance(hint, type):
        return Kind("other")
    if issubclass(hint, BaseModel):
        return Kind("group", models=(hint,))
    if issubclass(hint, Enum):
        return Kind("choice", choices=tuple(member.value for member in hint))
    return next((Kind(name) for base, name in _SCALARS if issubclass(hint, base)), OTHER)


def _container_kind(origin: Any, items: tuple[Any, ...]) -> Kind:
    if origin in _MAPS:
        return Kind("map", item=kind_of(items[1]) if items else Kind("open")) if items[:1] in ((str,), ()) else OTHER
    if origin is tuple and items[1:] not in ((), (...,)):
        return OTHER
    if origin is tuple and len(items) == 1:
        return OTHER
    return Kind("list", item=kind_of(items[0]) if items else Kind("open"))


def _union_kind(members: Sequence[Any], discriminator: str | None) -> Kind:
    present = [member for member in members if member is not types.NoneType]
    is_optional = len(present) < len(members)
    kinds = [kind_of(member) for member in present]
    if len(kinds) == 1:
        return replace(kinds[0], is_optional=is_optional or kinds[0].is_optional)
    names = {kind.name for kind in kinds}
    if names == {"group"}:
        models = tuple(model for kind in kinds for model in kind.models)
        tag = discriminator or "type"
        if all(tags_of(model, tag) for model in models):
            return Kind("group", is_optional, models=models, tag=tag)
    if names == {"whole number", "number"}:
        return Kind("number", is_optional)
    if names == {"whole number", "choice"}:
        choices = tuple(choice for kind in kinds for choice in kind.choices)
        return Kind("whole number", is_optional, choices)
    if names == {"choice"}:
        return Kind("choice", is_optional, tuple(choice for kind in kinds for choice in kind.choices))
    return Kind("other", is_optional)


def tags_of(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """The values of the field `tag` by which `model` is chosen; empty when it has no such field."""
    field = model.model_fields.get(tag)
    return get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()


def unset(kind: Kind, value: Any) -> bool:
    """True when `value` is the word by which an optional option that is not text is set to None."""
    return kind.is_optional and kind.name not in ("text", "open") and value == "none"


def settled(kind: Kind, value: Any) -> Any:
    """A value that fits, with None in place of each `none` that says so, as TOML has no None."""
    if unset(kind, value):
        return None
    item = kind.item or Kind("open")
    if kind.name == "list" and isinstance(value, list):
        return [settled(item, entry) for entry in cast("list[Any]", value)]
    if kind.name == "map" and isinstance(value, dict):
        return {key: settled(item, entry) for key, entry in cast("dict[str, Any]", value).items()}
    if kind.name == "group" and isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        model = _chosen_model(kind, table)
        kinds = {} if model is None else {key: _field_kind(field) for key, field in model.model_fields.items()}
        return {key: settled(kinds.get(key, OTHER), entry) for key, entry in table.items()}
    return value


def decode(kind: Kind, text: str) -> Any:
    """The value that `text`, from the command line or the environment, stands for.

    Raises:
        Misfit: It stands for none.
    """
    if unset(kind, text):
        return None
    match kind.name:
        case "text" | "path":
            return text
        case "list":
            return _decode_list(kind, text)
        case "map" if isinstance(entries := _json(text), dict):
            return _checked(kind, entries)
        case "open":
            return _json(text)
        case "other":
            # A text stays one; only what can't be written otherwise is JSON.
            return _json(text) if text[:1] in ("[", "{") else text
        case _:
            value = _scalar(kind, text)
            return _refuse(kind, text) if value is None else value


def _scalar(kind: Kind, text: str) -> Any:
    """The value of one word; None when it is none."""
    match kind.name:
        case "whole number":
            if _WHOLE.fullmatch(text) and len(text) <= _MAX_DIGITS:
                return int(text)
            return text if text in kind.choices else None
        case "number":
            return _number(text)
        case "boolean":
            return {"true": True, "false": False}.get(text.lower())
        case "choice":
            return next((choice for choice in kind.choices if str(choice) == text), None)
        case _:
            return None


def _refuse(kind: Kind, value: Any) -> NoReturn:
    raise Misfit(f"expected {describe(kind)}, found {shown(value)}{_nearest_choice(kind, value)}")


def _nearest_choice(kind: Kind, value: Any) -> str:
    near = difflib.get_close_matches(str(value), map(str, kind.choices), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _number(text: str) -> float | None:
    try:
        number = int(text) if _WHOLE.fullmatch(text) and len(text) <= _MAX_DIGITS else float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _json(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


def _decode_list(kind: Kind, text: str) -> list[Any]:
    item = kind.item or Kind("open")
    if text.lstrip().startswith("[") and isinstance(entries := _json(text), list):
        return _checked(kind, cast("list[Any]", entries))
    if item.name == "group" and isinstance(entry := _json(text), dict):
        return _checked(kind, [entry])
    if item.name == "group":
        raise Misfit(f"expected a list in JSON, found {shown(text)}")
    return [decode(item, text)]


def _checked(kind: Kind, value: Any) -> Any:
    for place, sentence in (inside := list(check(kind, value))):
        raise Misfit(f"{place.removeprefix('.')}: {sentence}" if place else sentence, inside)
    return settled(kind, value)


def check(kind: Kind, value: Any) -> Iterator[tuple[str, str]]:
    """What does not fit in a value that has types already, from TOML or JSON.

    Yields:
        Where inside the value (`[1].name`, or "" for the value itself), and what is wrong there.
    """
    item = kind.item or Kind("open")
    if value is None and kind.is_optional:
        return
    if kind.name == "list" and isinstance(value, list):
        for index, entry in enumerate(cast("list[Any]", value)):
            yield from ((f"[{index}]{place}", sentence) for place, sentence in check(item, entry))
    elif kind.name == "map" and isinstance(value, dict):
        for key, entry in cast("dict[str, Any]", value).items():
            yield from ((f".{key}{place}", sentence) for place, sentence in check(item, entry))
    elif kind.name == "group" and isinstance(value, dict):
        yield from _check_group(kind, cast("dict[str, Any]", value))
    elif not _fits(kind, value) and not unset(kind, value):
        yield "", f"expected {describe(kind)}, found {shown(value)}{_nearest_choice(kind, value)}"


def _check_group(kind: Kind, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    model = _chosen_model(kind, table)
    if model is None:
        tags = [tag for model in kind.models for tag in tags_of(model, kind.tag or "")]
        yield f".{kind.tag}", f"expected one of {', '.join(tags)}"
        return
    for key, value in table.items():
        if field := model.model_fields.get(key):
            for place, sentence in check(_field_kind(field), value):
                yield f".{key}{place}", sentence
        else:
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            yield f".{key}", f"unknown option{f'; did you mean {near[0]}?' if near else ''}"


def _chosen_model(kind: Kind, table: Mapping[str, Any]) -> type[BaseModel] | None:
    """The model that a table is of; None when it does not name one that there is."""
    if kind.tag is None:
        return kind.models[0]
    tags = {tag: model for model in kind.models for tag in tags_of(model, kind.tag)}
    chosen = table.get(kind.tag)
    return tags.get(chosen) if isinstance(chosen, str) else None


def _field_kind(field: FieldInfo) -> Kind:
    return kind_of(field.annotation, field.discriminator if isinstance(field.discriminator, str) else None)


def _fits(kind: Kind, value: Any) -> bool:
    match kind.name:
        case "text" | "path":
            return isinstance(value, str)
        case "whole number":
            return (isinstance(value, int) and not isinstance(value, bool)) or value in kind.choices
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        case "boolean":
            return isinstance(value, bool)
        case "choice":
            return any(value == choice and type(value) is type(choice) for choice in kind.choices)
        case "open":
            return not isinstance(value, datetime.date | datetime.time)
        case "other":
            return True
        case _:
            return False


def describe(kind: Kind) -> str:
    """What is expected, in words."""
    names = {
        "boolean": "true or false",
        "list": "a list",
        "map": "a table",
        "group": "a table",
        "open": "text, a number, true, false, a list or a table",
        "other": "a value",
        "path": "a path",
        "text": "text",
    }
    text = names.get(kind.name) or f"a {kind.name}"
    if kind.name == "choice":
        text = f"one of {', '.join(map(str, kind.choices))}"
    elif kind.choices:
        text += f" or {' or '.join(map(str, kind.choices))}"
    return f"{text} or none" if kind.is_optional and kind.name not in ("text", "open") else text


def shown(value: Any) -> str:
    """A value as mistakes name it; tables and lists are named, not shown."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return f"text {text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the {'whole ' if isinstance(value, int) else ''}number {value}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return "nothing" if value is None else f"a {type(value).__name__}"
