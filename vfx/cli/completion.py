"""What TAB offers after commands that are configured like an eval. No code but our own is imported for it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vfx.authoring.registry import (
    HARNESSES,
    TASKSETS,
    harness_class,
    known_harnesses,
    known_tasksets,
    taskset_class,
)
from vfx.cli.command import Command, command_of
from vfx.cli.options import SHORT, is_flag
from vfx.cli.schema import Field, Schema, dotted
from vfx.runner.config import EvalConfig
from vfx.runner.store import TRACES

__all__ = ["Item", "complete"]


@dataclass(frozen=True, slots=True)
class Item:
    """One offer, as the shell's side of typer reads it."""

    value: str
    help: str | None = None
    type: str = "plain"


def complete(name: str, words: Sequence[str], incomplete: str) -> list[Item]:
    """The offers for the word that is being typed.

    Args:
        name: The command.
        words: What was typed after its name, whole.
        incomplete: The beginning of the word.

    Returns:
        Nothing where the shell's own file names are the best offer.
    """
    return [Item(text) for text in _Completion(command_of(name, words), words, incomplete).offers()]


class _Completion:
    def __init__(self, command: Command, words: Sequence[str], incomplete: str) -> None:
        self._command = command
        # bash takes `--name=value` apart.
        self._words = [word for word in words if word != "="]
        self._incomplete = incomplete
        self._schema = self._narrowed()

    def offers(self) -> Iterator[str]:
        word, before = self._incomplete, self._words[-1] if self._words else ""
        if before == "@":
            yield from _toml_files(word)
        elif word.startswith("@"):
            # bash takes `@` for a word of its own but replaces it with the rest: there the file is best a word apart.
            if word == "@" and os.environ.get("_VFX_COMPLETE") == "complete_bash":
                yield word
            else:
                yield from (f"@{name}" for name in _toml_files(word[1:]))
        elif (field := self._awaits_value(before)) is not None:
            yield from (value for value in _values(field) if value.startswith(word))
        elif word.startswith("-"):
            yield from self._options(word)
        elif not self._has_positional():
            yield from _runs(word) if self._command.reads_run else _environments(word)

    def _narrowed(self) -> Schema:
        """The options that the variants leave which were chosen so far; of what others wrote, those all have."""
        plain = Schema(EvalConfig)
        given = {
            place.path: value
            for flag, value in zip(self._words, self._words[1:], strict=False)
            if flag.startswith("--") and (place := plain.locate(flag[2:].split(".")))
        }
        environment = given.get(("taskset", "id")) or self._positional(plain)
        models: dict[tuple[str, ...], Any] = {}
        if environment in TASKSETS:
            models["taskset",] = (environment, taskset_class(environment))
        harness = given.get(("harness", "id"), "chat")
        if harness in HARNESSES:
            models["harness",] = (harness, harness_class(harness))
        return Schema(EvalConfig, lambda path, tag: given.get((*path, tag)), models)

    def _awaits_value(self, word: str, schema: Schema | None = None) -> Field | None:
        """The option whose value comes next; None when none is awaited."""
        schema = schema or self._schema
        name = SHORT.get(word[1:]) if len(word) == 2 else word[2:] if word.startswith("--") else None
        place = schema.locate(name.split(".")) if name else None
        if place is None or place.kind.name == "boolean":
            return None
        return next((field for field in schema.walk() if field.path == place.path), None)

    def _is_switch(self, flag: str, schema: Schema) -> bool:
        name = flag.lstrip("-")
        return name in self._command.switches or schema.is_boolean(name)

    def _positional(self, schema: Schema) -> str | None:
        before = ""
        for word in self._words:
            is_own = before != "@" and (not before.startswith("-") or self._is_switch(before, schema))
            if is_own and not is_flag(word) and not word.startswith("@"):
                return word
            before = word
        return None

    def _has_positional(self) -> bool:
        return self._positional(self._schema) is not None

    def _options(self, word: str) -> Iterator[str]:
        names = [f"--{switch}" for switch in sorted(self._command.switches | {"help"})]
        for field in self._schema.walk():
            is_ours = self._command.options is None or field.path[0] in self._command.options
            if is_ours and self._schema.group(field) is None:
                names.append(f"--{dotted(field.path).replace('_', '-')}")
        sought = word.replace("_", "-")
        yield from (name for name in names if name.startswith(sought))


def _values(field: Field) -> Iterator[str]:
    if field.path == ("taskset", "id"):
        yield from known_tasksets()
    elif field.path == ("harness", "id"):
        yield from known_harnesses()
    else:
        yield from map(str, field.kind.choices)


def _environments(word: str) -> Iterator[str]:
    yield from (name for name in known_tasksets() if name.startswith(word))
    if not word:
        yield from sorted(f"./{path.name}" for path in Path().glob("*.py"))


def _toml_files(word: str) -> Iterator[str]:
    """TOML files and the folders on the way to them, for the path that `word` begins."""
    folder, _, start = word.rpartition("/")
    prefix = f"{folder}/" if "/" in word else ""
    try:
        entries = sorted(Path(prefix or ".").expanduser().iterdir())
    except OSError:
        return
    for path in entries:
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.suffix == ".toml":
                yield prefix + path.name
            elif path.is_dir():
                yield f"{prefix}{path.name}/"


def _runs(word: str) -> Iterator[str]:
    """The runs in the usual place, the newest first."""
    found = [path.parent for path in Path("outputs").glob(f"*/*/{TRACES}")]
    newest_first = sorted(found, key=lambda path: path.name, reverse=True)
    yield from (str(path) for path in newest_first if str(path).startswith(word))
