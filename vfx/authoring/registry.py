"""Turns what a user names into a class: an id, the path of a file, the folder of a package, or `module:Class`.

An id is of something that ships here, or that an installed package registers as an entry point.
"""

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from vfx.authoring.folders import is_folder, target_in_folder
from vfx.authoring.harness import Harness
from vfx.authoring.loading import load_file, load_module
from vfx.authoring.taskset import Taskset
from vfx.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUPS",
    "HARNESSES",
    "TASKSETS",
    "harness_class",
    "known_harnesses",
    "known_tasksets",
    "taskset_class",
]


# Named and not imported: a run pays only for what it uses, and this package stays below those that ship them.
TASKSETS = {
    "arithmetic": "vfx.tasksets.arithmetic:Arithmetic",
    "file": "vfx.tasksets.file:File",
    "guess-number": "vfx.tasksets.guess_number:GuessNumber",
    "reverse-text": "vfx.tasksets.reverse_text:ReverseText",
    "search": "vfx.tasksets.search:Search",
}
HARNESSES = {
    "chat": "vfx.harnesses.chat:Chat",
    "claude-code": "vfx.harnesses.presets:ClaudeCode",
    "codex": "vfx.harnesses.presets:Codex",
    "command": "vfx.harnesses.command:Command",
    "mini-swe-agent": "vfx.harnesses.presets:MiniSweAgent",
}

GROUPS = {"taskset": "vfx.tasksets", "harness": "vfx.harnesses"}
"""The entry points under which packages give theirs."""

T = TypeVar("T")


def taskset_class(reference: str, where: str = "ENV") -> type[Taskset[Any]]:
    """The taskset class that `reference` names.

    Raises:
        ConfigError: There is none, or its code can't be loaded.
    """
    return _find(reference, Taskset, TASKSETS, GROUPS["taskset"], where)


def harness_class(reference: str, where: str = "--harness.id") -> type[Harness]:
    """The harness class that `reference` names.

    Raises:
        ConfigError: There is none, or its code can't be loaded.
    """
    return _find(reference, Harness, HARNESSES, GROUPS["harness"], where)


def known_tasksets() -> Mapping[str, str]:
    """The ids of tasksets, each with what it comes from: `vfx`, or the name and version of a package."""
    return _known(TASKSETS, GROUPS["taskset"])


def known_harnesses() -> Mapping[str, str]:
    """The ids of harnesses, each with what it comes from: `vfx`, or the name and version of a package."""
    return _known(HARNESSES, GROUPS["harness"])


def _known(shipped: Mapping[str, str], group: str) -> Mapping[str, str]:
    installed = {name: _origin(point) for name, point in sorted(_entry_points(group).items())}
    return {**dict.fromkeys(sorted(shipped), "vfx"), **{k: v for k, v in installed.items() if k not in shipped}}


def _entry_points(group: str) -> Mapping[str, "EntryPoint"]:
    """What installed packages register, without importing any of it."""
    # It reads every package's metadata, which only an id that does not ship is worth.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {point.name: point for point in entry_points(group=group)}


def _origin(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _find(reference: str, base: type[T], shipped: Mapping[str, str], group: str, where: str) -> type[T]:
    if target := shipped.get(reference) or shipped.get(reference.replace("_", "-")):
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)
    location, _, name = reference.partition(":")
    if is_folder(location):
        module, chosen = target_in_folder(location, name, group, where)
        return _pick(load_module(module, where), chosen, base, reference, where)
    if location.endswith(".py") or "/" in location:
        return _pick(load_file(location, where), name, base, reference, where)
    if name:
        return _pick(load_module(location, where), name, base, reference, where)
    installed = _entry_points(group)
    if point := installed.get(reference) or installed.get(reference.replace("_", "-")):
        target = f"{point.value} (of {_origin(point)})"
        return _pick(load_module(point.module, where), point.attr, base, target, where)
    raise ConfigError(_unknown(reference, base, {*shipped, *installed}, where))


def _unknown(reference: str, base: type[Any], known: set[str], where: str) -> Mistake:
    what = base.__name__.lower()
    expected = f"no {what} is called {reference!r}; expected an id, the path of a .py file or folder, or module:Class"
    if Path(reference).is_dir():
        return Mistake(expected, where, f"write ./{reference} for the folder")
    if Path(f"{reference}.py").is_file():
        return Mistake(expected, where, f"write ./{reference}.py for the file")
    near = difflib.get_close_matches(reference, known, n=1, cutoff=0.5)
    return Mistake(expected, where, f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}")


def _pick(module: ModuleType, name: str, base: type[T], reference: str, where: str) -> type[T]:
    what = base.__name__
    candidates = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and _is_from(value, module)
    }
    if name:
        chosen = getattr(module, name, None)
        if isinstance(chosen, type) and issubclass(chosen, base):
            return chosen
        near = difflib.get_close_matches(name, candidates, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(candidates) or 'none'}"
        raise ConfigError(Mistake(f"{reference!r} has no {what} class {name}", where, hint))
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if not candidates:
        raise ConfigError(Mistake(f"{reference!r} defines no subclass of vfx.{what}", where))
    choices = ", ".join(f"{reference}:{key}" for key in candidates)
    raise ConfigError(Mistake(f"{reference!r} defines several {what} classes", where, f"name one: {choices}"))


def _is_from(value: type, module: ModuleType) -> bool:
    """True when a class was made in `module` or below it, and not only imported there."""
    return value.__module__ == module.__name__ or value.__module__.startswith(f"{module.__name__}.")
