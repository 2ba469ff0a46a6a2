"""Where values come from: files, environment variables and flags, each weaker than the next."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

from vfx.cli.options import Arguments
from vfx.errors import Mistake

__all__ = ["PREFIX", "Layers", "Precedence", "Source", "read_files"]

PREFIX = "VFX_"
_RESERVED = frozenset({"VFX_DATA_DIR"})
"""Variables with our prefix that are no options."""


class Precedence(IntEnum):
    """Which value wins: the greatest."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was given."""

    precedence: Precedence
    name: str
    """The file, the variable or the flag; for a default, which."""

    def at(self, path: str) -> str:
        """Where a mistake is, for the person who made it."""
        return f"{self.name}: {path}" if self.precedence is Precedence.FILE else self.name

    def spell(self, path: str) -> str:
        """How an option is written there."""
        match self.precedence:
            case Precedence.FILE:
                return path
            case Precedence.ENVIRONMENT:
                return PREFIX + path.replace(".", "__").upper()
            case _:
                return f"--{path.replace('_', '-')}"


def read_files(names: Sequence[str]) -> tuple[list[tuple[str, dict[str, Any]]], list[Mistake]]:
    """The tables of TOML files with their names, and what is wrong with those that can't be read."""
    tables: list[tuple[str, dict[str, Any]]] = []
    mistakes: list[Mistake] = []
    for name in names:
        try:
            with open(name, "rb") as file:
                tables.append((name, tomllib.load(file)))
        except OSError as error:
            mistakes.append(Mistake(f"can't be read: {error.strerror}", f"@ {name}"))
        except UnicodeDecodeError as error:
            mistakes.append(Mistake(f"is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}", name))
        except tomllib.TOMLDecodeError as error:
            mistakes.append(Mistake(f"is not valid TOML: {error}", name))
        except RecursionError:
            mistakes.append(Mistake("is nested too deeply", name))
    return tables, mistakes


class Layers:
    """All that was given, not yet looked up in a schema.

    Args:
        files: Tables with the names of their files, the weakest first.
        environ: The environment; what does not begin with `VFX_` is left alone.
        arguments: The flags.
    """

    def __init__(
        self, files: Sequence[tuple[str, Mapping[str, Any]]], environ: Mapping[str, str], arguments: Arguments
    ) -> None:
        self.files = files
        self.variables = {
            name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in _RESERVED
        }
        self.arguments = arguments

    def flags(self) -> Iterator[tuple[Source, str, str | None]]:
        """Each flag with its dotted name and its value; ENV is one of them."""
        if self.arguments.env is not None:
            yield Source(Precedence.FLAG, "ENV"), "taskset.id", self.arguments.env
        for option in self.arguments.options:
            yield Source(Precedence.FLAG, option.flag), option.path, option.value

    def find(self, *path: str) -> tuple[Any, Source] | None:
        """The strongest value at a path of field names, as it was given; None when there is none."""
        for source, name, value in reversed(list(self.flags())):
            if name.replace("-", "_") == ".".join(path):
                return value, source
        variable = PREFIX + "__".join(path).upper()
        if variable in self.variables:
            return self.variables[variable], Source(Precedence.ENVIRONMENT, variable)
        for name, table in reversed(self.files):
            found, value = _descend(table, path)
            if found:
                return value, Source(Precedence.FILE, name)
        return None

    def has_any(self, group: str) -> bool:
        """True when something was given below the group of that name."""
        return (
            any(path.partition(".")[0].replace("-", "_") == group for _, path, _ in self.flags())
            or any(name.startswith(f"{PREFIX}{group.upper()}__") for name in self.variables)
            or any(_descend(table, (group,))[1] for _, table in self.files)
        )


def _descend(table: Any, path: Sequence[str]) -> tuple[bool, Any]:
    for name in path:
        if not isinstance(table, dict):
            return False, None
        entries = {key.replace("-", "_"): value for key, value in cast("dict[str, Any]", table).items()}
        if name not in entries:
            return False, None
        table = entries[name]
    return True, table
