"""Runs the user's files and modules, and says where they fail."""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from pydantic import PydanticUserError

from vfx.errors import ConfigError, Mistake

__all__ = ["describe_error", "file_modules", "load_file", "load_module"]

_files: dict[str, str] = {}


def file_modules() -> dict[str, str]:
    """The modules that were loaded by the path of a file: path by name, for another process to find them."""
    return dict(_files)


def load_file(location: str, where: str) -> ModuleType:
    """The module in the file at path `location`; a file that was loaded before is not run again.

    Args:
        location: The path.
        where: What the user named it with, for the message.

    Raises:
        ConfigError: There is no such file, or its code fails.
    """
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(Mistake(f"there is no file {location!r}", where))
    # Two files of one name may take part in a run, and classes are found again by their module's name.
    name = f"vfx_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
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
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise ConfigError(Mistake(f"{location!r} can't be loaded: {describe_error(error, path)}", where)) from error
    _files[name] = str(path)
    return module


def load_module(name: str, where: str) -> ModuleType:
    """The importable module `name`; the working directory counts as importable.

    Raises:
        ConfigError: It can't be imported.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ConfigError(Mistake(f"module {name!r} can't be loaded: {describe_error(error)}", where)) from error


def describe_error(error: Exception, path: Path | None = None) -> str:
    """The error with the line of the user's code where it came up."""
    text = _plainly(error) or f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, path)]
    return f"{text} (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else text


def _is_users(filename: str, path: Path | None) -> bool:
    """True for the file at `path`; for any that neither Python, nor a library, nor vfx brought, when it is None."""
    if path is not None:
        return filename == str(path)
    brought = (os.path.dirname(os.__file__), str(Path(__file__).parents[1]), "<frozen")
    return not filename.startswith(brought) and "site-packages" not in filename


def _plainly(error: Exception) -> str | None:
    """What to do about a mistake that pydantic finds in a class; None for any other error."""
    if not isinstance(error, PydanticUserError):
        return None
    text = error.message
    name = found.group(1) if (found := re.search(r"[`'](\w+)", text)) else "an attribute"
    if error.code == "model-field-missing-annotation":
        return (
            f"{name!r} has no type: write it as a field, such as `{name}: int = ...`, "
            f"or as a constant of the class, `{name}: ClassVar[...] = ...`"
        )
    if error.code == "model-field-overridden":
        return f"{name!r} is a field of a base class and must keep a type: write `{name}: ... = ...`"
    if error.code == "schema-for-unknown-type":
        return f"a field has a type that can't be checked or stored: {text.splitlines()[0]}"
    return text.splitlines()[0]
