"""Environments that are named by the folder of their package, which need not be installed."""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vfx.errors import ConfigError, Mistake

__all__ = ["is_folder", "target_in_folder"]

PROJECT = "pyproject.toml"
PACKAGE = "__init__.py"


def is_folder(location: str) -> bool:
    """True when `location` is written as a path and leads to a folder."""
    return (location in (".", "..") or "/" in location) and Path(location).expanduser().is_dir()


def target_in_folder(location: str, name: str, group: str, where: str) -> tuple[str, str]:
    """Make the package in a folder importable.

    Args:
        location: The folder: one with a pyproject.toml that names its entry points, or a package itself.
        name: Which of its entry points or classes; "" = there is only one.
        group: The group of entry points, such as `vfx.tasksets`.
        where: What the user named it with, for the message.

    Returns:
        The module to import, and the class in it; "" = the only one there.

    Raises:
        ConfigError: There is nothing of the kind in the folder, or a choice to make.
    """
    folder = Path(location).expanduser().resolve()
    if (folder / PROJECT).is_file():
        target = _chosen(_entry_points(folder / PROJECT, group, where), location, name, group, where)
        module, _, chosen = target.partition(":")
        top = module.partition(".")[0]
        has_src = any((folder / "src" / path).exists() for path in (top, f"{top}.py"))
        _make_importable(folder / "src" if has_src else folder)
        return module, chosen
    if (folder / PACKAGE).is_file() and folder.name.isidentifier():
        _make_importable(folder.parent)
        return folder.name, name
    files = sorted(path.name for path in folder.glob("*.py"))
    hint = (
        f"name a file in it, such as {Path(location, files[0])}" if files else "vfx init NAME makes one with everything"
    )
    raise ConfigError(Mistake(f"the folder {location!r} has neither {PROJECT} nor {PACKAGE}", where, hint))


def _entry_points(project: Path, group: str, where: str) -> Mapping[str, str]:
    try:
        content = tomllib.loads(project.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(Mistake(f"{project} can't be read: {error}", where)) from error
    found: Any = content
    for key in ("project", "entry-points", group):
        found = cast("dict[str, Any]", found).get(key, {}) if isinstance(found, dict) else {}
    points = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not points:
        lines = f'[project.entry-points."{group}"] with a line such as: my-env = "my_env:MyEnv"'
        raise ConfigError(Mistake(f"{project} names no entry point of the group {group}", where, f"add {lines}"))
    return {name: str(target) for name, target in points.items()}


def _chosen(points: Mapping[str, str], location: str, name: str, group: str, where: str) -> str:
    if name:
        by_class = {target.partition(":")[2]: target for target in points.values()}
        if target := points.get(name) or by_class.get(name):
            return target
        raise ConfigError(
            Mistake(f"{location!r} has no {name} among its {group}", where, f"it has: {', '.join(points)}")
        )
    if len(points) > 1:
        choices = ", ".join(f"{location}:{point}" for point in points)
        raise ConfigError(Mistake(f"{location!r} has several {group}", where, f"name one: {choices}"))
    return next(iter(points.values()))


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
