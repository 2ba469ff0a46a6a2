"""The help of `vfx eval`: one screen of what is used most, or everything, from the fields and their docstrings."""

import ast
import inspect
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from vfx.cli.options import SHORT
from vfx.cli.resolve import DEFAULT_HARNESS, Narrowed, narrow
from vfx.cli.schema import Field, Group, Path, Schema, dotted
from vfx.cli.values import Kind
from vfx.errors import Mistake

__all__ = ["GROUPS", "docstrings", "help_text"]

MAX_WIDTH = 100
FLAG_WIDTH = 25
KIND_WIDTH = 15

GROUPS: Mapping[str, Sequence[str]] = {
    "What": ("harness.id", "num_tasks", "num_rollouts", "shuffle", "seed", "include", "exclude"),
    "Model": ("model", "client.type", "client.base_url", "client.api_key_var", "sampling.temperature"),
    "Limits": ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "timeout.rollout"),
    "Run": ("max_concurrent", "interception.type", "retries.max_attempts", "log_level", "display"),
    "Results": ("output_dir", "name", "max_error_share", "fail_under"),
    "Files": (),
}
"""What the one screen shows, by dotted path."""

ROWS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "What": (("ENV", "the demo", "The environment: an id, a .py file, a folder, or module:Class."),),
    "Results": (
        ("--replace", "", "Empty the run folder of that --name first."),
        ("--resume RUN_DIR", "", "Go on with that run; -n and -r may extend it."),
        ("--json", "", "The summary as JSON on stdout."),
    ),
    "Files": (
        ("@ FILE", "", "Read options from a TOML file; later files win."),
        ("VFX_NAME, VFX_GROUP__NAME", "", "An option by environment variable; wins over files."),
        ("--dry-run", "", "Show all options and where they come from, and stop."),
        ("-h, --help, --help-all", "", "This screen; every option of every variant."),
    ),
}

USAGE = "Usage: vfx eval [ENV] [@ FILE ...] [-m MODEL] [-n N] [-r N] [-c N] [--any.dotted.option VALUE]"


def help_text(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, Sequence[Mistake]]:
    """The help for what was typed; mistakes in it don't keep it from being shown.

    Args:
        argv: The arguments. `--help-all` asks for everything; a named ENV adds its own options.
        environ: The environment.

    Returns:
        The text, and why options of a named environment or harness are not in it.
    """
    narrowed = narrow(argv, environ)
    schema = narrowed.schema
    lines = [USAGE]
    if "help-all" in narrowed.layers.arguments.switches:
        lines += _everything(schema)
    else:
        lines += _one_screen(schema)
        lines += _own_options(narrowed)
        names = " ".join(f"--{name}.*" for name, field in schema.root.fields.items() if schema.group(field))
        lines += ["", f"Groups: {names}", "vfx eval --help-all lists their options, vfx eval ENV --help those of ENV."]
    return "\n".join(line.rstrip() for line in lines), narrowed.unloaded


def _width() -> int:
    return max(60, min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns))


def _one_screen(schema: Schema) -> Iterator[str]:
    # The screen is the same whatever was chosen, so that it can be learnt.
    plain = Schema(schema.root.model)
    fields = {dotted(field.path): field for field in plain.walk()}
    for title, paths in GROUPS.items():
        yield f"{title}:"
        rows = list(ROWS.get(title, ()))
        shown = [(_flag(fields[path]), _value(fields[path]), _choice_clause(fields, path)) for path in paths]
        for row in [*rows[:1], *shown, *rows[1:]] if title == "What" else [*shown, *rows]:
            yield _row(*row)


def _choice_clause(fields: Mapping[str, Field], path: str) -> str:
    """The clause of a field; of one that chooses a variant, what it chooses."""
    field = fields[path]
    above = fields.get(dotted(field.path[:-1]))
    if above is None or field.path[-1] not in ("id", above.kind.tag):
        return _clause(_doc(field))
    choices = ", ".join(map(str, field.kind.choices))
    return f"{_clause(_doc(above)).rstrip('.')}{': ' if choices else ''}{choices}."


def _own_options(narrowed: Narrowed) -> Iterator[str]:
    """The options of the environment and the harness that were named."""
    for name in ("taskset", "harness"):
        group = narrowed.schema.group(narrowed.schema.root.fields[name])
        if group is None or not group.is_certain or narrowed.layers.find(name, "id") is None:
            continue
        yield ""
        yield f"{name.capitalize()} {group.tag}: {_summary(group.model)}".rstrip(": ")
        for field in sorted(_leaves(narrowed.schema, group), key=_is_common):
            if field.path != (name, "id"):
                yield from _rows(_flag(field), _value(field), _clause(_doc(field)))


def _everything(schema: Schema) -> Iterator[str]:
    yield ""
    yield "Options:"
    for field in schema.root.fields.values():
        if schema.group(field) is None:
            yield from _entry(field)
    for row in (row for rows in ROWS.values() for row in rows):
        yield _row(*row)
    for field in schema.root.fields.values():
        if group := schema.group(field):
            yield from _section(schema, group, _doc(field))


def _section(schema: Schema, group: Group, doc: str) -> Iterator[str]:
    yield ""
    name = _spelled(group.path)
    chosen = f" ({group.tag})" if group.tag is not None and not group.variants else ""
    yield from textwrap.wrap(f"--{name}.*{chosen}: {doc}", _width(), subsequent_indent="  ")
    if not group.variants:
        yield from _entries(schema, group)
        return
    tag = group.fields[group.kind.tag or ""]
    yield from _entry(tag)
    for value, model in group.variants.items():
        variant = Group(group.path, Kind("group", models=(model,)), model, tag=value)
        yield f"  with --{_spelled(tag.path)} {value}: {_summary(model)}"
        yield from _entries(schema, variant, skip=tag.path)


def _entries(schema: Schema, group: Group, skip: Path | None = None) -> Iterator[str]:
    for field in group.fields.values():
        inner = schema.group(field)
        if inner is not None:
            yield from _section(schema, inner, _doc(field))
        elif field.path != skip:
            yield from _entry(field)


def _entry(field: Field) -> Iterator[str]:
    yield _row(_flag(field), _value(field), "")
    yield from textwrap.wrap(_doc(field), _width(), initial_indent=" " * 6, subsequent_indent=" " * 6)


def _leaves(schema: Schema, group: Group) -> Iterator[Field]:
    """Every option below `group`; a choice among variants, whose options are many, counts as one."""
    for field in group.fields.values():
        inner = schema.group(field)
        if inner is None or inner.variants:
            yield field
        else:
            yield from _leaves(schema, inner)


def _is_common(field: Field) -> bool:
    """False for what the author of an environment or harness has declared: that comes first."""
    bases = (base for base in field.owner.__mro__ if field.path[-1] in vars(base).get("__annotations__", {}))
    return any(base.__module__.startswith(("vfx.authoring.", "vfx.clients.", "vfx.messages")) for base in bases)


def _rows(flag: str, value: str, doc: str) -> Iterator[str]:
    """One row, or two where the flag leaves no room for the rest."""
    if len(flag) > FLAG_WIDTH:
        yield f"  {flag}"
        flag = ""
    yield _row(flag, value, doc)


def _row(flag: str, value: str, doc: str) -> str:
    left = f"  {flag:<{FLAG_WIDTH}} {value:<{KIND_WIDTH}} "
    room = _width() - len(left)
    if len(doc) > room:
        doc = textwrap.shorten(doc, max(room, 10), placeholder=" …")
    return left + doc


def _spelled(path: Path) -> str:
    return dotted(path).replace("_", "-")


def _flag(field: Field) -> str:
    letter = next((f"-{letter}, " for letter, name in SHORT.items() if (name,) == field.path), "")
    negation = "[no-]" if field.kind.name == "boolean" and len(field.path) == 1 else ""
    below = ".*" if field.kind.name == "group" else ".KEY" if field.kind.name == "map" else ""
    return f"{letter}--{negation}{_spelled(field.path)}{below}"


def _value(field: Field) -> str:
    """The default where there is one that says something, else the kind of value."""
    default: Any = DEFAULT_HARNESS if field.path == ("harness", "id") else field.default
    if default is PydanticUndefined:
        return f"{_kind_word(field.kind)}, required"
    if field.kind.name == "boolean":
        return str(default).lower()
    if default is None or default in ((), [], {}, ""):
        return "JSON" if _is_list_of_groups(field.kind) else _kind_word(field.kind)
    if isinstance(default, BaseModel):
        return ""
    if field.kind.item is not None and field.kind.item.name == "group":
        return "JSON"
    text = ",".join(map(str, cast("Sequence[Any]", default))) if isinstance(default, tuple | list) else str(default)
    number = f"{default:g}" if isinstance(default, float) else text
    return number if len(number) <= KIND_WIDTH else _kind_word(field.kind)


def _is_list_of_groups(kind: Kind) -> bool:
    return kind.name == "list" and kind.item is not None and kind.item.name == "group"


def _kind_word(kind: Kind) -> str:
    words: dict[str, str] = {"whole number": "NUMBER", "number": "NUMBER", "list": "TEXT ...", "map": "VALUE"}
    if kind.name == "choice":
        return "|".join(map(str, kind.choices))
    return words.get(kind.name) or kind.name.upper().replace("OTHER", "VALUE").replace("OPEN", "VALUE")


def _doc(field: Field) -> str:
    doc = docstrings(field.owner).get(field.path[-1]) or field.info.description or ""
    if field.kind.name == "choice" and field.kind.choices and not doc:
        doc = f"One of {', '.join(map(str, field.kind.choices))}."
    return " ".join(doc.split())


def _clause(doc: str) -> str:
    """The first sentence, or what of it fits a line by itself."""
    sentence = re.split(r"(?<=[.!?])\s", doc, maxsplit=1)[0]
    for border in (r"[;:]\s", r"[;:,]\s"):
        if len(sentence) > MAX_WIDTH - FLAG_WIDTH - KIND_WIDTH - 4:
            sentence = re.split(border, sentence, maxsplit=1)[0].rstrip(".") + "."
    return sentence


def _summary(model: type[BaseModel]) -> str:
    for base in model.__mro__:
        # What these say is for whoever subclasses them.
        if base.__module__ in ("vfx.authoring.harness", "vfx.authoring.taskset"):
            break
        if base.__doc__:
            return _clause(" ".join(inspect.cleandoc(base.__doc__).split()))
    return ""


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The strings under a model's fields, inherited ones included; read from the source, so only for help."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _own_docstrings(base)
    return found


@cache
def _own_docstrings(model: type[Any]) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError, SyntaxError):
        return {}  # A class that was made without source has no help either.
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: doc.value.value
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
