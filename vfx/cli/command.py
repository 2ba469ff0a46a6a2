"""What a command takes of the options of an eval. All commands read them in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass

from vfx.cli.options import SWITCHES, Arguments, Names, Option
from vfx.errors import Mistake

__all__ = ["COMMANDS", "EVAL", "REPLAY", "VALIDATE", "Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command that is configured like an eval."""

    name: str
    options: frozenset[str] | None = None
    """The options it has, by the first part of their dotted name; None = all. Files may hold the others too."""
    switches: frozenset[str] = SWITCHES
    calls_model: bool = True
    """Whether a model has to be named."""
    reads_run: bool = False
    """Its argument is the folder of a run, whose configuration is read before all other files, and not ENV."""

    def restrict(self, arguments: Arguments, names: Names) -> Sequence[Mistake]:
        """Take out of `arguments` what an eval has and this command has not.

        Returns:
            A mistake for each.
        """
        foreign = [option for option in arguments.options if not self._has(option) and names.is_option(option.path)]
        arguments.options = [option for option in arguments.options if option not in foreign]
        flags = [option.flag for option in foreign]
        flags += [f"--{name}" for name in sorted(arguments.switches - self.switches)]
        arguments.switches &= self.switches
        return [Mistake(f"is no option of vfx {self.name}", flag, "it is one of vfx eval") for flag in flags]

    def _has(self, option: Option) -> bool:
        root = option.path.partition(".")[0].replace("-", "_")
        return self.options is None or root in self.options or root.removeprefix("no_") in self.options


EVAL = Command("eval")
VALIDATE = Command(
    "validate",
    options=frozenset(
        {"taskset", "harness", "num_tasks", "shuffle", "seed", "include", "exclude", "max_concurrent", "timeout"}
    ),
    switches=frozenset({"json"}),
    calls_model=False,
)
REPLAY = Command(
    "replay",
    options=frozenset({"taskset", "name", "output_dir", "fail_under", "max_error_share", "max_concurrent", "timeout"}),
    switches=frozenset({"json", "replace"}),
    calls_model=False,
    reads_run=True,
)
COMMANDS = {command.name: command for command in (EVAL, VALIDATE, REPLAY)}
