"""`vfx init`: makes an environment that runs, to be changed into one's own."""

import keyword
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from vfx import __version__
from vfx.errors import ConfigError, Mistake

__all__ = ["command"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the package, such as my-env; of the file with --single-file.")
    ],
    *,
    single_file: Annotated[bool, typer.Option("--single-file", help="One file, and no package around it.")] = False,
) -> None:
    """Make an environment that runs: a package with a test, or one file."""
    name = name.removesuffix(".py") if single_file else name.rstrip("/")
    _check_name(name)
    values = _values(name)
    try:
        told = _make_file(values) if single_file else _make_package(values)
    except OSError as error:
        raise ConfigError(Mistake(f"can't be written: {error.strerror}", str(error.filename or name))) from error
    typer.echo("\n".join(told))


def _check_name(name: str) -> None:
    module = _module(name)
    if not _NAME.fullmatch(name):
        what = "expected letters, digits and single - or _ between them, beginning with a letter"
    elif keyword.iskeyword(module) or keyword.issoftkeyword(module):
        what = "is a word of Python's own"
    elif module in sys.stdlib_module_names or module in ("vfx", "test", "tests"):
        what = "is the name of another module, which it would hide"
    else:
        return
    raise ConfigError(Mistake(what, f"NAME {name!r}", f"such as {_suggestion(name)}"))


def _suggestion(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    joined = "-".join(re.findall(r"[a-z0-9]+", plain.lower())).lstrip("0123456789-")
    if not joined:
        return "my-env"
    return joined if _NAME.fullmatch(joined) and joined != name.lower() else f"{joined}-env"


def _module(name: str) -> str:
    return name.replace("-", "_").lower()


def _values(name: str) -> Mapping[str, str]:
    words = re.split(r"[-_]", name)
    taskset = "".join(word[:1].upper() + word[1:] for word in words)
    return {
        "name": name,
        "module": _module(name),
        "taskset": taskset,
        "task": f"{taskset}Task",
        "version": __version__,
    }


def _make_file(values: Mapping[str, str]) -> list[str]:
    from vfx.cli.templates import SINGLE_FILE  # noqa: PLC0415

    path = Path(f"{values['module']}.py")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(Template(SINGLE_FILE).substitute(values))
    except FileExistsError as error:
        raise ConfigError(
            Mistake("is there already, and is left as it is", str(path), "choose another name")
        ) from error
    return [
        f"{path} is made. Next:",
        f"  vfx eval ./{path} --client.type scripted    # without a model",
        f"  vfx validate ./{path}",
    ]


def _make_package(values: Mapping[str, str]) -> list[str]:
    from vfx.cli.templates import PACKAGE  # noqa: PLC0415

    folder = Path(values["name"])
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigError(Mistake(f"{what}, and is left as it is", str(folder), "choose another name"))
    for name, text in PACKAGE.items():
        path = folder / Template(name).substitute(values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(values), "utf-8")
    return [
        f"{folder}/ is made. Next:",
        f"  cd {folder}",
        "  vfx eval . --client.type scripted    # without a model; with one: -m MODEL",
        "  vfx validate .                       # are the tasks right?",
        "  python -m pytest                     # its test, offline",
        f"The work is in src/{values['module']}/__init__.py.",
    ]
