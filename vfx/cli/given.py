"""What was given, looked up in the schema: one value per option, the strongest, and every mistake on the way."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from vfx.cli.layers import PREFIX, Layers, Precedence, Source
from vfx.cli.options import SWITCHES
from vfx.cli.schema import Group, Path, Place, Schema, dotted
from vfx.cli.values import Kind, Misfit, check, decode, describe, settled, unset
from vfx.errors import Mistake

__all__ = ["Entry", "Given"]

_CLOSE = 0.85
"""A variable without `__` that is this like an option is taken for one misspelt."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and where it was given."""

    value: Any
    source: Source


class Given:
    """Values by path. Paths of open maps end in the map's key.

    Args:
        schema: The options there are.
        layers: What was given.
    """

    def __init__(self, schema: Schema, layers: Layers) -> None:
        self.values: dict[Path, Entry] = {}
        self.refused: set[Path] = set()
        """Options whose value is a mistake already."""
        self.mistakes: list[Mistake] = []
        self._schema = schema
        self._layers = layers
        for name, table in layers.files:
            self._add_table(table, schema.root, Source(Precedence.FILE, name))
        for variable, text in sorted(layers.variables.items()):
            self._add_variable(variable, text)
        for source, path, text in layers.flags():
            self._add_flag(source, path, text)

    def tree(self) -> dict[str, Any]:
        """The values as nested tables."""
        tree: dict[str, Any] = {}
        # The strongest last: it may replace a whole table by none, or a none by a table.
        for path, entry in sorted(self.values.items(), key=lambda item: item[1].source.precedence):
            table = tree
            for name in path[:-1]:
                if not isinstance(table.get(name), dict):
                    table[name] = {}
                table = table[name]
            table[path[-1]] = entry.value
        return tree

    def source(self, path: Path) -> Source | None:
        """Where the option at `path`, or something below it, was given; None when it was not."""
        if path in self.values:
            return self.values[path].source
        below = (entry.source for key, entry in self.values.items() if key[: len(path)] == path)
        return max(below, key=lambda source: source.precedence, default=None)

    def is_refused(self, path: Path) -> bool:
        """True when the value of that option, or of one above or below it, is a mistake already."""
        return any(bad[: len(path)] == path or path[: len(bad)] == bad for bad in self.refused)

    def _complain(self, what: str, where: str, hint: str = "") -> None:
        mistake = Mistake(what, where, hint)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    # Files

    def _add_table(self, table: Mapping[str, Any], group: Group, source: Source) -> None:
        for key, value in table.items():
            field = group.find(key)
            if field is None:
                self._unknown((*group.path, key), source)
            elif inner := self._schema.group(field):
                if isinstance(value, dict):
                    self._add_table(cast("dict[str, Any]", value), inner, source)
                else:
                    self._put_typed(field.path, field.kind, value, source)
            elif field.kind.name == "map" and isinstance(value, dict):
                self._add_map(field.path, field.kind, cast("dict[str, Any]", value), source)
            else:
                self._put_typed(field.path, field.kind, value, source)

    def _add_map(self, path: Path, kind: Kind, entries: Mapping[str, Any], source: Source) -> None:
        item = kind.item or Kind("open")
        for key, value in entries.items():
            if item.name == "group" and isinstance(value, dict):
                self._add_table(cast("dict[str, Any]", value), self._schema.below((*path, key), item), source)
            else:
                self._put_typed((*path, key), item, value, source)

    def _put_typed(self, path: Path, kind: Kind, value: Any, source: Source) -> None:
        misfits = list(check(kind, value))
        for place, sentence in misfits:
            self._complain(sentence, source.at(dotted(path) + place))
        if misfits:
            self.refused.add(path)
        else:
            self.values[path] = Entry(settled(kind, value), source)

    # Variables and flags

    def _add_variable(self, variable: str, text: str) -> None:
        words = variable.removeprefix(PREFIX).split("__")
        source = Source(Precedence.ENVIRONMENT, variable)
        place = self._schema.locate(words)
        if place is not None and not place.is_negated:
            self._put_text(place, text, source)
            return
        path = [word.lower() for word in words]
        known = (dotted(field.path) for field in self._schema.root.fields.values())
        if len(words) > 1 or difflib.get_close_matches(path[0], known, n=1, cutoff=_CLOSE):
            self._unknown(tuple(path), source)

    def _add_flag(self, source: Source, path: str, text: str | None) -> None:
        words = path.split(".")
        place = self._schema.locate(words) if all(words) else None
        if place is None:
            self._unknown(tuple(words), source)
        elif place.is_negated:
            if text is None:
                self.values[place.path] = Entry(value=False, source=source)
            else:
                self._complain("takes no value", source.name, f"write {source.spell(dotted(place.path))} {text}")
        elif text is None and place.kind.name == "boolean":
            self.values[place.path] = Entry(value=True, source=source)
        elif text is None:
            self._complain(f"expected {describe(place.kind)} after it", source.name)
            self.refused.add(place.path)
        else:
            self._put_text(place, text, source)

    def _put_text(self, place: Place, text: str, source: Source) -> None:
        if place.kind.name == "group" and not unset(place.kind, text):
            name = dotted(place.path).replace("_", "-")
            self._complain("is a group of options", source.name, f"give them one by one, as --{name}.NAME VALUE")
            return
        try:
            value = decode(place.kind, text)
        except Misfit as misfit:
            item = place.kind.item
            if item is not None and item.name == "group" and misfit.inside:
                # As in a file: entries such as judges have options of their own.
                for step, sentence in misfit.inside:
                    self._complain(f"{dotted(place.path)}{step}: {sentence}", source.name)
            else:
                self._complain(str(misfit), source.name, _repeat(place.kind, text, source))
            self.refused.add(place.path)
            return
        if place.kind.name == "map" and isinstance(value, dict):
            for key, entry in cast("dict[str, Any]", value).items():
                self.values[*place.path, key] = Entry(entry, source)
            return
        before = self.values.get(place.path)
        if place.kind.name == "list" and before and before.source.precedence is source.precedence is Precedence.FLAG:
            value = [*(before.value or ()), *(value or ())]
        self.values[place.path] = Entry(value, source)

    # What does not exist

    def _unknown(self, words: Path, source: Source) -> None:
        if not self._schema.certain(words[:-1]):
            return  # Its variant is a mistake already, so nothing can be said about what goes with it.
        name = words[-1].replace("_", "-")
        if len(words) == 1 and name in SWITCHES:
            self._complain("unknown option", source.at(dotted(words)), f"--{name} is for the command line only")
            return
        chosen = self._schema.variant(words[:-1])
        of = f" of {_variant_name(chosen)}" if chosen else ""
        self._complain(f"unknown option{of}", source.at(dotted(words)), self._meant(words, source))

    def _meant(self, words: Path, source: Source) -> str:
        near = self._schema.nearest(words)
        if near is None:
            return ""
        name, choice = near
        if choice and name == dotted(words).replace("-", "_"):
            return f"it goes with {choice}; {self._chooser(words)}"
        return f"did you mean {source.spell(name)}{', which goes with ' + choice if choice else ''}?"

    def _chooser(self, words: Path) -> str:
        """Who chose the variant that an option does not go with."""
        group = self._schema.variant(words[:-1])
        if group is None:
            return ""
        found = self._layers.find(*group.path, group.kind.tag or "id")
        return f"{group.tag} was chosen by {found[1].name}" if found else f"{group.tag} is the default"


def _variant_name(group: Group) -> str:
    return f"{dotted(group.path)} {group.tag}"


def _repeat(kind: Kind, text: str, source: Source) -> str:
    if kind.name != "list" or "," not in text or text.lstrip()[:1] in ("[", "{"):
        return ""
    flag = source.name if source.precedence is Precedence.FLAG else ""
    return f"repeat {flag} for each, or write JSON such as {_as_json(text.split(','))}" if flag else "write JSON"


def _as_json(entries: Sequence[str]) -> str:
    return "'[" + ", ".join(_quoted(entries)) + "]'"


def _quoted(entries: Sequence[str]) -> Iterator[str]:
    return (f'"{entry.strip()}"' for entry in entries)
