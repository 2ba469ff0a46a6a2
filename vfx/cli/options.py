"""What was typed after `vfx eval`, as text. One scan finds every option; what a value means is decided elsewhere."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vfx.errors import Mistake

__all__ = ["SHORT", "SWITCHES", "Arguments", "Names", "Option", "is_flag", "scan"]

SHORT = {"m": "model", "n": "num_tasks", "r": "num_rollouts", "c": "max_concurrent"}
SWITCHES = frozenset({"dry-run", "json", "replace", "rerun", "resume", "help", "help-all"})
"""What belongs to the command and not to the configuration."""

_NUMBER = re.compile(r"-\.?\d")


class Names(Protocol):
    """What the scan has to know about the options that exist."""

    def is_option(self, path: str) -> bool:
        """True when an option has this dotted name."""
        ...

    def is_boolean(self, path: str) -> bool:
        """True when the option of this dotted name, or of its `no-` form, is set without a value."""
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it was typed."""

    flag: str
    """With its dashes, without its value."""
    path: str
    """The dotted name, without dashes before it."""
    value: str | None
    """None when there was none."""


@dataclass(slots=True)
class Arguments:
    """All that was typed."""

    env: str | None = None
    folder: str | None = None
    """A run's folder, given with --resume or, to a command that takes one, in the place of ENV."""
    files: list[str] = field(default_factory=list[str])
    options: list[Option] = field(default_factory=list[Option])
    switches: set[str] = field(default_factory=set[str])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])


def is_flag(word: str) -> bool:
    """True when `word` can only be an option; a negative number and a lone dash are values."""
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def scan(argv: Sequence[str], names: Names) -> Arguments:
    """Take the command's arguments apart; mistakes are collected, not raised."""
    return _Scan(argv, names).run()


class _Scan:
    def __init__(self, argv: Sequence[str], names: Names) -> None:
        self._words = list(reversed(argv))
        self._names = names
        self._found = Arguments()

    def run(self) -> Arguments:
        while self._words:
            word = self._words.pop()
            if word == "--":
                while self._words:
                    self._positional(self._words.pop())
            elif word.startswith("@"):
                self._file(word[1:])
            elif word.startswith("--"):
                self._long(word)
            elif is_flag(word):
                self._short(word)
            else:
                self._positional(word)
        return self._found

    def _positional(self, word: str) -> None:
        if self._found.env is None:
            self._found.env = word
            return
        hint = f"write @ {word} to read it" if word.endswith(".toml") else "one ENV is expected"
        self._found.mistakes.append(Mistake("unexpected argument", word, hint))

    def _file(self, attached: str) -> None:
        if attached:
            self._found.files.append(attached)
        elif self._words and not is_flag(self._words[-1]):
            self._found.files.append(self._words.pop())
        else:
            self._found.mistakes.append(Mistake("expected a file after it", "@", "such as @ run.toml"))
        # An environment never ends so.
        while self._words and self._words[-1].endswith(".toml") and not self._words[-1].startswith(("-", "@")):
            self._found.files.append(self._words.pop())

    def _long(self, word: str) -> None:
        name, equals, attached = word[2:].partition("=")
        switch = name.replace("_", "-")
        if switch == "resume":
            self._resume(attached if equals else self._take_value(switch))
            return
        if switch in SWITCHES:
            if equals:
                self._found.mistakes.append(Mistake("takes no value", f"--{name}"))
            self._found.switches.add(switch)
            return
        self._option(f"--{name}", name, attached if equals else None)

    def _resume(self, folder: str | None) -> None:
        if folder:
            self._found.switches.add("resume")
            self._found.folder = folder
        else:
            self._found.mistakes.append(Mistake("expected the folder of a run after it", "--resume"))

    def _short(self, word: str) -> None:
        name = word[1:].partition("=")[0]
        letter, rest = word[1], word[2:]
        if word == "-h":
            self._found.switches.add("help")
        elif rest and (name.replace("_", "-") in SWITCHES or self._names.is_option(name)):
            # Else `-max-turns 3` would be the model `ax-turns`.
            self._found.mistakes.append(Mistake("long options begin with two dashes", f"-{name}", f"write --{name}"))
            self._take_value(name)
        elif letter not in SHORT:
            known = ", ".join(f"-{letter}" for letter in SHORT)
            self._found.mistakes.append(Mistake("unknown option", f"-{name}", f"short options are {known} and -h"))
        else:
            self._option(f"-{letter}", SHORT[letter], rest.removeprefix("=") if rest else None)

    def _option(self, flag: str, path: str, attached: str | None) -> None:
        value = self._take_value(path) if attached is None else attached
        self._found.options.append(Option(flag, path, value))

    def _take_value(self, path: str) -> str | None:
        if not self._words:
            return None
        word = self._words[-1]
        if self._names.is_boolean(path):
            return self._words.pop() if word.lower() in ("true", "false") else None
        # `@cf/name` may be a value, a lone `@` introduces a file.
        return None if is_flag(word) or word == "@" else self._words.pop()
