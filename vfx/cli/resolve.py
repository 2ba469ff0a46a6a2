"""From all that was given to one frozen configuration, or to every mistake in it at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from vfx.authoring.harness import Harness
from vfx.authoring.registry import harness_class, taskset_class
from vfx.authoring.taskset import Taskset
from vfx.cli.command import EVAL, Command
from vfx.cli.given import Entry, Given
from vfx.cli.layers import Layers, Precedence, Source, read_files
from vfx.cli.options import Arguments, scan
from vfx.cli.schema import Group, Path, Schema, dotted
from vfx.cli.sentences import findings
from vfx.cli.side_clients import side_client_mistakes
from vfx.clients.base import HttpSettings
from vfx.errors import ConfigError, Mistake
from vfx.redaction import MASK
from vfx.runner.config import EvalConfig
from vfx.runner.digest import VARIANTS, differences
from vfx.runner.store import CONFIG

__all__ = ["DEFAULT_HARNESS", "DEMO", "Narrowed", "Resolved", "named_folder", "narrow", "resolve"]

DEMO = "arithmetic"
DEFAULT_HARNESS = "chat"
_VARIABLE = re.compile(r"[A-Za-z_]\w*")

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration that can be run."""

    config: EvalConfig
    sources: Mapping[str, Source]
    """By dotted path; what is not in it is a default."""
    is_demo: bool
    """True when no environment was named."""
    switches: frozenset[str]
    """What was asked of the command itself, such as `dry-run`."""
    folder: str | None = None
    """The folder of the run that was named; None where a command takes none."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What was given, with the options that its choices leave."""

    layers: Layers
    schema: Schema
    is_demo: bool
    uses_demo_model: bool
    """True when the demo brings its own model, because none was named."""
    unloaded: Sequence[Mistake]
    """Why the environment or the harness can't be loaded."""
    mistakes: Sequence[Mistake]
    """All others that were found on the way."""
    saved: Mapping[str, Any] | None = None
    """The configuration of the run that goes on; None for a new run."""


def resolve(argv: Sequence[str], environ: Mapping[str, str], command: Command = EVAL) -> Resolved:
    """Merge defaults, files, environment variables and flags.

    Args:
        argv: What was typed after the command's name.
        environ: The environment.
        command: Which of the options it has.

    Raises:
        ConfigError: With every mistake.
    """
    narrowed = narrow(argv, environ, command)
    arguments = narrowed.layers.arguments
    if arguments.folder is not None and not FilePath(arguments.folder, CONFIG).is_file():
        raise ConfigError(Mistake(f"it holds no {CONFIG}, so it is no run folder", arguments.folder))
    given = Given(narrowed.schema, narrowed.layers)
    _settle(narrowed, given)
    config, found = _validate(narrowed.schema, given)
    contradictions = _contradictions(narrowed.schema, given, command)
    mistakes = [*narrowed.mistakes, *narrowed.unloaded, *given.mistakes, *found, *contradictions]
    if config is not None and narrowed.saved is not None:
        mistakes += differences(narrowed.saved, config)
    if config is None or mistakes:
        raise ConfigError(*dict.fromkeys(mistakes))
    sources = {dotted(path): entry.source for path, entry in given.values.items()}
    return Resolved(
        config, MappingProxyType(sources), narrowed.is_demo, frozenset(arguments.switches), arguments.folder
    )


def narrow(argv: Sequence[str], environ: Mapping[str, str], command: Command = EVAL) -> Narrowed:
    """Find out what was chosen, importing a named environment; mistakes are collected, not raised."""
    names = _Names(Schema(EvalConfig))
    arguments, foreign = _scan(argv, names, command)
    files, file_mistakes = read_files(arguments.files)
    loaded: dict[tuple[type[BaseModel], str], tuple[type[BaseModel] | None, list[Mistake]]] = {}
    while True:
        layers = Layers(_fitting(files, environ, arguments), environ, arguments)
        is_demo = layers.find("taskset", "id") is None
        taskset = _Choice(layers, "taskset", DEMO)
        work = taskset.load(Taskset[Any], taskset_class, loaded)
        harness = _Choice(layers, "harness", getattr(work[1], "default_harness", DEFAULT_HARNESS))
        is_demo_work = taskset.name.replace("_", "-") == DEMO
        uses_demo_model = is_demo_work and layers.find("model") is None and not layers.has_any("client")
        models = {
            ("taskset",): work,
            ("harness",): harness.load(Harness, harness_class, loaded),
        }
        schema = Schema(EvalConfig, _chooser(layers, uses_demo_model=uses_demo_model), models)
        # Knowing the chosen classes, another option may turn out to be a switch, and its value to be ENV.
        names.schema = schema
        again, foreign = _scan(argv, names, command)
        if (again.env, again.options) == (arguments.env, arguments.options):
            break
        arguments = again
    unloaded = [*taskset.mistakes, *harness.mistakes]
    mistakes = [*again.mistakes, *foreign, *file_mistakes, *_two_names(again), *_two_folders(again)]
    saved = files[0][1] if files and "resume" in again.switches else None
    return Narrowed(layers, schema, is_demo, uses_demo_model, unloaded, mistakes, saved)


def named_folder(argv: Sequence[str], command: Command) -> str | None:
    """The run folder that was typed; None when there is none."""
    return _scan(argv, _Names(Schema(EvalConfig)), command)[0].folder


def _scan(argv: Sequence[str], names: "_Names", command: Command) -> tuple[Arguments, Sequence[Mistake]]:
    arguments = scan(argv, names)
    if command.reads_run and arguments.env is not None:
        arguments.folder, arguments.env = arguments.env, None
    if arguments.folder is not None:
        arguments.files.insert(0, str(FilePath(arguments.folder, CONFIG)))
    return arguments, command.restrict(arguments, names)


def _fitting(
    files: Sequence[tuple[str, dict[str, Any]]], environ: Mapping[str, str], arguments: Arguments
) -> Sequence[tuple[str, dict[str, Any]]]:
    """The files; of a run that is taken up with another variant of a group, without the options of the saved one."""
    if not files or arguments.folder is None:
        return files
    (name, saved), *later = files
    over = Layers(later, environ, arguments)
    kept: dict[str, Any] = {}
    for group, table in saved.items():
        found = over.find(group, VARIANTS[group]) if group in VARIANTS else None
        chosen = cast("dict[str, Any]", table).get(VARIANTS.get(group, "")) if isinstance(table, dict) else None
        if found is None or found[0] == chosen:
            kept[group] = table
    return [(name, kept), *later]


class _Names:
    """The names that a scan goes by. Once a switch, always a switch, or two readings could alternate forever."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._switches: set[str] = set()

    def is_option(self, path: str) -> bool:
        return self.schema.is_option(path)

    def is_boolean(self, path: str) -> bool:
        if self.schema.is_boolean(path):
            self._switches.add(path)
        return path in self._switches


class _Choice:
    """The environment or the harness that was named."""

    def __init__(self, layers: Layers, group: str, default: str) -> None:
        found = layers.find(group, "id")
        value, source = found or (default, Source(Precedence.DEFAULT, f"--{group}.id"))
        self.name = value if isinstance(value, str) else ""
        self._is_empty = value == ""
        self.mistakes: list[Mistake] = []
        self._where = source.at(f"{group}.id")

    def load(
        self,
        base: type[ModelT],
        find: Callable[[str, str], type[ModelT]],
        loaded: dict[tuple[type[BaseModel], str], tuple[type[BaseModel] | None, list[Mistake]]],
    ) -> tuple[str, type[BaseModel] | None]:
        """The name with its class; None when there is no such class, which is a mistake."""
        if (base, self.name) not in loaded:
            loaded[base, self.name] = self._load(find)
        model, self.mistakes = loaded[base, self.name]
        return self.name, model

    def _load(self, find: Callable[[str, str], type[BaseModel]]) -> tuple[type[BaseModel] | None, list[Mistake]]:
        if self._is_empty:
            return None, [
                Mistake("expected an id, the path of a .py file or folder, or module:Class, found nothing", self._where)
            ]
        if not self.name:
            return None, []  # No text, or none after the flag: whoever reads the value says so.
        if self._where == "ENV" and self.name.endswith(".toml"):
            return None, [Mistake(f"{self.name} is no environment", "ENV", f"write @ {self.name} to read its options")]
        try:
            return find(self.name, self._where), []
        except ConfigError as error:
            return None, list(error.mistakes)
        except SystemExit as error:
            return None, [Mistake(f"{self.name!r} can't be loaded: it calls sys.exit({error.code!r})", self._where)]


def _chooser(layers: Layers, *, uses_demo_model: bool) -> Callable[[Path, str], Any]:
    def choose(path: Path, tag: str) -> Any:
        if path == ("client",) and uses_demo_model:
            return "local"
        found = layers.find(*path, tag)
        return found[0] if found else None

    return choose


def _two_names(arguments: Arguments) -> list[Mistake]:
    given = [option for option in arguments.options if option.path.replace("-", "_") == "taskset.id"]
    if arguments.env is None or not given or given[-1].value == arguments.env:
        return []
    return [Mistake("names another environment than ENV", given[-1].flag, "give one of them")]


def _two_folders(arguments: Arguments) -> list[Mistake]:
    if not {"resume", "replace"} <= arguments.switches:
        return []
    return [Mistake("can't go with --resume: a run goes on or is removed", "--replace", "give one of them")]


def _settle(narrowed: Narrowed, given: Given) -> None:
    """Put in what follows from the situation and was not given."""
    harness = narrowed.schema.group(narrowed.schema.root.fields["harness"])
    for path, name in ((("taskset", "id"), DEMO), (("harness", "id"), harness and harness.tag)):
        if path not in given.values and path not in given.refused:
            given.values[path] = Entry(name, Source(Precedence.DEFAULT, "default"))
    if narrowed.uses_demo_model:
        given.values["client", "type"] = Entry("local", Source(Precedence.DEFAULT, "default of the demo"))


def _validate(schema: Schema, given: Given) -> tuple[EvalConfig | None, list[Mistake]]:
    tree = _complete(schema, schema.root, given.tree())
    mistakes: list[Mistake] = []
    parts: dict[str, BaseModel | None] = {}
    for name in ("taskset", "harness"):
        field = schema.root.fields[name]
        group = schema.group(field)
        if group is not None and group.is_certain:
            parts[name] = _build(group.model, tree.get(name, {}), schema, given, mistakes, (name,))
        # A stand-in, so that the rest is checked all the same.
        tree[name] = parts.get(name) or field.kind.models[0].model_construct()
    config = _build(EvalConfig, tree, schema, given, mistakes, ())
    return (None if None in parts.values() or len(parts) < 2 else config), mistakes


def _build(
    model: type[ModelT], data: Mapping[str, Any], schema: Schema, given: Given, mistakes: list[Mistake], prefix: Path
) -> ModelT | None:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for path, inside, sentence in findings(error, schema, prefix):
            if not given.is_refused(path):
                mistakes.append(_mistake(path, inside, sentence, given))
    except Exception as error:  # noqa: BLE001 - a validator of the environment's author failed
        mistakes.append(Mistake(f"can't be configured: {type(error).__name__}: {error}", dotted(prefix)))
    return None


def _mistake(path: Path, inside: str, sentence: str, given: Given) -> Mistake:
    source = given.values[path].source if path in given.values else None
    if source is None or source.precedence is Precedence.DEFAULT:
        return Mistake(sentence, Source(Precedence.FLAG, "").spell(dotted(path)) + inside if path else "")
    name = dotted(path) + inside
    where = source.at(name)
    return Mistake(sentence, where if source.precedence is Precedence.FILE or not inside else f"{where} {inside}")


def _complete(schema: Schema, group: Group, data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with the tags of the chosen variants, and laid over defaults that are more than those of their class."""
    whole = dict(data)
    for name, field in group.fields.items():
        inner = schema.group(field)
        value = whole.get(name)
        if field.kind.name == "map":
            default: Any = field.default
            if isinstance(value, dict) and isinstance(default, dict):
                whole[name] = {**cast("dict[str, Any]", default), **cast("dict[str, Any]", value)}
            if isinstance(value, dict) and field.kind.item and field.kind.item.name == "group":
                whole[name] = _complete_entries(schema, field.path, field.kind.item, cast("dict[str, Any]", value))
        elif inner is not None and isinstance(value, dict):
            base = field.default
            own = base.model_dump(exclude_unset=True) if type(base) is inner.model else {}
            completed = _complete(schema, inner, _overlaid(own, cast("dict[str, Any]", value)))
            if inner.kind.tag is not None and inner.is_certain and inner.tag is not None:
                completed[inner.kind.tag] = inner.tag
            whole[name] = completed
    return whole


def _complete_entries(schema: Schema, path: Path, kind: Any, entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _complete(schema, schema.below((*path, key), kind), cast("dict[str, Any]", entry))
        if isinstance(entry, dict)
        else entry
        for key, entry in entries.items()
    }


def _overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _overlaid(cast("dict[str, Any]", below), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged


def _contradictions(schema: Schema, given: Given, command: Command) -> list[Mistake]:
    """What is right option by option and still can't be run."""
    mistakes: list[Mistake] = []
    client = schema.group(schema.root.fields["client"])
    model, key_var = given.values.get(("model",)), given.values.get(("client", "api_key_var"))
    is_http = client is not None and client.is_certain and client.model is HttpSettings
    if command.calls_model and is_http and not (model and model.value) and ("model",) not in given.refused:
        mistakes.append(Mistake("no model is named", "-m", "name a model with -m, such as -m gpt-4.1-mini"))
    if key_var and key_var.value and not _VARIABLE.fullmatch(key_var.value):
        where = key_var.source.at("client.api_key_var")
        mistakes.append(Mistake("expected the name of an environment variable; a key itself is not taken", where))
    if command.calls_model:
        mistakes += side_client_mistakes(given)
    for path, entry in given.values.items():
        is_needed = command.calls_model or path[0] == "taskset" or (command.runs_program and path[0] == "harness")
        if is_needed and entry.source.precedence is Precedence.FILE and _is_masked(path, entry.value):
            flag = Source(Precedence.FLAG, "").spell(dotted(path[:2])) + "".join(f".{key}" for key in path[2:])
            where = entry.source.at(dotted(path))
            mistakes.append(Mistake("was masked when it was saved", where, f"give it again with {flag}"))
    return mistakes


def _is_masked(path: Path, value: Any) -> bool:
    is_url = path == ("client", "base_url") or (path[-1] == "url" and "tools" in path[1:3])
    return value == MASK or (is_url and isinstance(value, str) and MASK in value)
