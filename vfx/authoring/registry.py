"""Turns what a user names into a class: the id of something that ships, the path of a file, or `module:Class`."""

import difflib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from vfx.authoring.harness import Harness
from vfx.authoring.taskset import Taskset
from vfx.errors import ConfigError, Mistake

__all__ = ["HARNESSES", "TASKSETS", "harness_class", "taskset_class"]

# Named and not imported: a run pays only for what it uses, and this package stays below those that ship them.
TASKSETS = {
    "arithmetic": "vfx.tasksets.arithmetic:Arithmetic",
    "reverse-text": "vfx.tasksets.reverse_text:ReverseText",
}
HARNESSES = {
    "chat": "vfx.harnesses.chat:Chat",
}

T = TypeVar("T")


def taskset_class(reference: str, where: str = "ENV") -> type[Taskset[Any]]:
    """The taskset class that `reference` names.

    Raises:
        ConfigError: There is none, or its code can't be loaded.
    """
    return _find(reference, Taskset, TASKSETS, where)


def harness_class(reference: str, where: str = "--harness.id") -> type[Harness]:
    """The harness class that `reference` names.

    Raises:
        ConfigError: There is none, or its code can't be loaded.
    """
    return _find(reference, Harness, HARNESSES, where)


def _find(reference: str, base: type[T], shipped: dict[str, str], where: str) -> type[T]:
    what = base.__name__.lower()
    if target := shipped.get(reference) or shipped.get(reference.replace("_", "-")):
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)
    location, _, name = reference.partition(":")
    if location.endswith(".py") or "/" in location:
        return _pick(_load_file(location, where), name, base, reference, where)
    if name:
        return _pick(_load_module(location, where), name, base, reference, where)
    near = difflib.get_close_matches(reference, shipped, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(shipped))}"
    expected = f"no {what} is called {reference!r}; expected an id, the path of a .py file, or module:Class"
    raise ConfigError(Mistake(expected, where, hint))


def _pick(module: ModuleType, name: str, base: type[T], reference: str, where: str) -> type[T]:
    what = base.__name__
    candidates = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
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


def _load_file(location: str, where: str) -> ModuleType:
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(Mistake(f"there is no file {location!r}", where))
    name = f"vfx_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(Mistake(f"{location!r} is not a Python file", where))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script: what lies beside the file can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(Mistake(f"{location!r} can't be loaded: {_describe(error, path)}", where)) from error
    return module


def _load_module(name: str, where: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ConfigError(Mistake(f"module {name!r} can't be loaded: {_describe(error)}", where)) from error


def _describe(error: Exception, path: Path | None = None) -> str:
    """The error with the line of the user's code where it came up."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text
    frames = [f for f in traceback.extract_tb(error.__traceback__) if path is None or f.filename == str(path)]
    return f"{text} (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else text
