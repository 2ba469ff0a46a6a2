"""What a command takes of the options of an eval. All commands read them in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vfx.cli.options import SWITCHES, Arguments, Names, Option
from vfx.errors import Mistake

__all__ = ["EVAL", "REPLAY", "RERUN", "VALIDATE", "Command", "command_of"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command that is configured like an eval."""

    name: str
    options: frozenset[str] | None = None
    """The options it has, by the first part of their dotted name; None = all. Files may hold the others too."""
    switches: frozenset[str] = SWITCHES - {"rerun"}
    calls_model: bool = True
    """Whether a model has to be named."""
    runs_program: bool = True
    """Whether the harness is of use, so that none of its options may be masked."""
    reads_run: bool = False
    """Its argument is the folder of a run, whose configuration is read before all other files, and not ENV."""

    def restrict(self, arguments: Arguments, names: Names) -> Sequence[Mistake]:
        """Take out of `arguments` what an eval has and this command has not.

        Returns:
            A mistake for each.
        """
        foreign = [option for option in arguments.options if not self.has(option) and names.is_option(option.path)]
        arguments.options = [option for option in arguments.options if option not in foreign]
        switches = sorted(arguments.switches - self.switches)
        owned = [(option.flag, RERUN if self is REPLAY and RERUN.has(option) else EVAL) for option in foreign]
        owned += [(f"--{name}", EVAL if name in EVAL.switches else REPLAY) for name in switches]
        arguments.switches &= self.switches
        what = f"is no option of vfx {self.name}"
        return [Mistake(what, flag, f"it is one of vfx {owner.name}") for flag, owner in owned]

    def has(self, option: Option) -> bool:
        """Whether an option is one of this command's."""
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
    runs_program=False,
)
REPLAY = Command(
    "replay",
    options=frozenset({"taskset", "name", "output_dir", "fail_under", "max_error_share", "max_concurrent", "timeout"}),
    switches=frozenset({"dry-run", "json", "replace", "rerun"}),
    calls_model=False,
    runs_program=False,
    reads_run=True,
)
RERUN = replace(
    REPLAY,
    name="replay --rerun",
    options=frozenset({"harness", "interception"}).union(REPLAY.options or ()),
    runs_program=True,
)


def command_of(name: str, words: Sequence[str]) -> Command:
    """The command that `name` and what was typed after it come to."""
    if name == REPLAY.name and "--rerun" in words:
        return RERUN
    return next(command for command in (EVAL, VALIDATE, REPLAY) if command.name == name)
