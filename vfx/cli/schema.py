"""Which options exist: the tree of configuration models, narrowed to the variants that were chosen."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vfx.cli.values import Kind, kind_of, tags_of

__all__ = ["Field", "Group", "Path", "Place", "Schema", "dotted"]

Path = tuple[str, ...]
MAX_DEPTH = 8
NEAR = 0.68
MISSPELT = 0.6


def dotted(path: Path) -> str:
    """The path as it stands in a file."""
    return ".".join(path)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a group."""

    path: Path
    kind: Kind
    info: FieldInfo
    owner: type[BaseModel]

    @property
    def default(self) -> Any:
        """What holds when nothing is given; PydanticUndefined when something must be, or it can't be told."""
        try:
            return self.info.get_default(call_default_factory=True, validated_data={})
        except Exception:  # noqa: BLE001 - a factory of the environment's author, which may need other fields
            return PydanticUndefined


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dotted name leads."""

    path: Path
    kind: Kind
    is_negated: bool = False
    """True for the `no-` form of a boolean."""


class Group:
    """The options that one model holds."""

    def __init__(
        self, path: Path, kind: Kind, model: type[BaseModel], *, tag: Any = None, is_certain: bool = True
    ) -> None:
        self.path = path
        self.kind = kind
        self.model = model
        """The chosen one."""
        self.tag = tag
        """By what it was chosen; None when there is no choice."""
        self.is_certain = is_certain
        """False when what was chosen does not exist: what its options would be is then unknown."""

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """By name."""
        return {
            name: Field((*self.path, name), self._field_kind(name, info), info, self.model)
            for name, info in self.model.model_fields.items()
        }

    def _field_kind(self, name: str, info: FieldInfo) -> Kind:
        if name == self.kind.tag and len(self.kind.models) > 1:
            return Kind("choice", choices=tuple(self.variants))
        return kind_of(info.annotation, info.discriminator if isinstance(info.discriminator, str) else None)

    @cached_property
    def variants(self) -> Mapping[Any, type[BaseModel]]:
        """The models there are to choose from, by tag; empty when there is no choice."""
        tag = self.kind.tag
        return {} if tag is None else {value: model for model in self.kind.models for value in tags_of(model, tag)}

    def find(self, word: str) -> Field | None:
        """The field of that name; dashes are underscores, and what an environment variable shouts is heard."""
        name = word.replace("-", "_")
        return self.fields.get(name) or self.fields.get(name.lower()) or self._added(name.lower())

    def _added(self, name: str) -> Field | None:
        """An entry that the model does not declare; None where it takes no such entries."""
        if self.model.model_config.get("extra") != "allow" or not name:
            return None
        kind = kind_of(get_type_hints(self.model)["__pydantic_extra__"])
        info = FieldInfo(annotation=kind.item.models[0] if kind.item and kind.item.models else None)
        return Field((*self.path, name), kind.item or kind, info, self.model)


class Schema:
    """The options of a command.

    Args:
        root: The model of all.
        choose: What was given as the variant of the group at a path, by the tag's name; None = nothing.
        models: Name and model of these groups, in place of the declared one; None = there is no such model.
    """

    def __init__(
        self,
        root: type[BaseModel],
        choose: Callable[[Path, str], Any] = lambda path, tag: None,
        models: Mapping[Path, tuple[str, type[BaseModel] | None]] | None = None,
    ) -> None:
        self._choose = choose
        self._models = models or {}
        self._groups: dict[Path, Group] = {}
        self.root = Group((), Kind("group", models=(root,)), root)

    def group(self, field: Field) -> Group | None:
        """What stands below `field`; None when it is no group."""
        return self._group(field.path, field.kind, field) if field.kind.name == "group" else None

    def _group(self, path: Path, kind: Kind, field: Field | None) -> Group:
        if path not in self._groups:
            self._groups[path] = self._make_group(path, kind, field)
        return self._groups[path]

    def _make_group(self, path: Path, kind: Kind, field: Field | None) -> Group:
        if path in self._models:
            name, model = self._models[path]
            return Group(path, kind, model or kind.models[0], tag=name, is_certain=model is not None)
        if kind.tag is None:
            return Group(path, kind, kind.models[0])
        variants = {tag: model for model in kind.models for tag in tags_of(model, kind.tag)}
        chosen = self._choose(path, kind.tag)
        if isinstance(chosen, str) and chosen in variants:
            return Group(path, kind, variants[chosen], tag=chosen)
        default = field.default if field else None
        model = next((model for model in kind.models if isinstance(default, model)), kind.models[0])
        # Of a group that is unset, the first one is meant as soon as one of its options is given.
        tag = getattr(default, kind.tag) if default is not None else next(iter(tags_of(model, kind.tag)), None)
        return Group(path, kind, model, tag=tag, is_certain=chosen is None)

    def below(self, place: Path, kind: Kind) -> Group:
        """The group of one entry of a map of groups."""
        return self._group(place, kind, None)

    def locate(self, words: Sequence[str]) -> Place | None:
        """What the dotted name, split at its dots, leads to; None when there is no such option."""
        return self._locate(self.root, words)

    def _locate(self, group: Group, words: Sequence[str]) -> Place | None:
        word, rest = words[0], words[1:]
        field = group.find(word)
        if field is None:
            positive = group.find(word[3:]) if word[:3].lower() in ("no-", "no_") and not rest else None
            is_negated = positive is not None and positive.kind.name == "boolean"
            return Place(positive.path, positive.kind, is_negated=True) if positive and is_negated else None
        if not rest:
            return Place(field.path, field.kind)
        if inner := self.group(field):
            return self._locate(inner, rest)
        if field.kind.name != "map" or field.kind.item is None:
            return None
        if field.kind.item.name == "group":
            inner = self.below((*field.path, rest[0]), field.kind.item)
            return self._locate(inner, rest[1:]) if rest[1:] else Place(inner.path, field.kind.item)
        return Place((*field.path, ".".join(rest)), field.kind.item)

    def is_option(self, path: str) -> bool:
        """True when an option has this dotted name."""
        return self.locate(path.split(".")) is not None

    def is_boolean(self, path: str) -> bool:
        """True when the option of this dotted name, or of its `no-` form, is set without a value."""
        place = self.locate(path.split("."))
        return place is not None and place.kind.name == "boolean"

    def certain(self, words: Sequence[str]) -> bool:
        """False when a group on the way has a variant that does not exist, so that nothing can be said about it."""
        group = self.root
        for word in words:
            field = group.find(word)
            inner = self.group(field) if field else None
            if inner is None:
                return True
            if not inner.is_certain:
                return False
            group = inner
        return True

    def variant(self, words: Sequence[str]) -> Group | None:
        """The innermost group on the way that was chosen among several; None when there is none."""
        group, chosen = self.root, None
        for word in words:
            field = group.find(word)
            inner = self.group(field) if field else None
            if inner is None:
                break
            group = inner
            chosen = inner if inner.tag is not None else chosen
        return chosen

    def walk(self, group: Group | None = None) -> Iterator[Field]:
        """Every field, groups before what they hold."""
        for field in (group or self.root).fields.values():
            yield field
            inner = self.group(field)
            if inner is not None and len(inner.path) < MAX_DEPTH:
                yield from self.walk(inner)

    def every_variant(self) -> Iterator[tuple[Field, Group]]:
        """Every field of the variants that were not chosen, with its group."""
        for field in self.walk():
            inner = self.group(field)
            for tag, model in inner.variants.items() if inner else ():
                if inner and model is not inner.model:
                    other = Group(inner.path, inner.kind, model, tag=tag)
                    yield from ((its, other) for its in other.fields.values())

    def nearest(self, words: Sequence[str]) -> tuple[str, str] | None:
        """The dotted name that may have been meant, and what has to be chosen for it; None = nothing is near.

        The second is "", or a choice such as `client.type local`.
        """
        sought = [word.replace("-", "_") for word in words]
        best, found = NEAR, None
        for field in self.walk():
            if (score := _likeness(sought, field)) > best:
                best, found = score, (dotted(field.path), "")
        for field, group in self.every_variant():
            if (score := _likeness(sought, field)) > best:
                choice = f"{dotted((*group.path, group.kind.tag or ''))} {group.tag}"
                best, found = score, (dotted(field.path), choice)
        return found


def _likeness(sought: Sequence[str], field: Field) -> float:
    """How alike two dotted names are, from 0 to 1; the last name counts most, since levels are easily mistaken."""
    last = _ratio(sought[-1], field.path[-1])
    if last < MISSPELT:
        return 0.0
    level = _ratio(".".join(sought[:-1]), ".".join(field.path[:-1]))
    # Of equal ones, that of the whole run is likelier than that of a part of it.
    depth = len(field.path) / 1000
    return 0.8 * last + 0.2 * level - depth - (0.05 if field.kind.name == "group" else 0.0)


def _ratio(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
