"""`vfx list`: the environments and harnesses there are. What is listed is not imported."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str
    """`taskset` or `harness`."""
    id: str
    origin: str
    """`vfx`, or the name and version of the package that it comes with."""
    description: str
    """The first sentence of its docstring; "" for what others ship, since their code is not read."""


def command(*, as_json: Annotated[bool, typer.Option("--json", help="The list as JSON on stdout.")] = False) -> None:
    """List the environments and harnesses that can be named by an id; none of them is imported."""
    from vfx.authoring.registry import HARNESSES, TASKSETS, known_harnesses, known_tasksets  # noqa: PLC0415

    entries = [
        _Entry("taskset", name, origin, _description(TASKSETS, name)) for name, origin in known_tasksets().items()
    ]
    entries += [
        _Entry("harness", name, origin, _description(HARNESSES, name)) for name, origin in known_harnesses().items()
    ]
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    width = max(len(entry.id) for entry in entries)
    for kind, title in (("taskset", "Environments (vfx eval ENV)"), ("harness", "Harnesses (--harness.id)")):
        typer.echo(f"{title}:")
        for entry in entries:
            if entry.kind == kind:
                about = entry.description or f"from {entry.origin}"
                typer.echo(f"  {entry.id:<{width}}  {about}")
    typer.echo("\nAn environment can also be named by its file, its folder, or module:Class; vfx init NAME makes one.")


def _description(shipped: Mapping[str, str], name: str) -> str:
    """The first sentence of a shipped class's docstring, read from its source."""
    from importlib.util import find_spec  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    if name not in shipped:
        return ""
    module, _, name = shipped[name].partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    text = ast.get_docstring(found) if found else None
    line = (text or ast.get_docstring(tree) or "").partition("\n")[0]
    return re.split(r"(?<=[.!?])\s", line, maxsplit=1)[0]
