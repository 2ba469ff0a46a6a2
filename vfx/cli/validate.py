"""`vfx validate`: checks an environment's tasks without a model. Loads what it needs once it is known to be needed."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from vfx.errors import ConfigError, Mistake
from vfx.redaction import redact

if TYPE_CHECKING:
    from vfx.runner.config import EvalConfig
    from vfx.runner.validate import Validation

__all__ = ["command"]

NAMED_TASKS = 3
"""How many of the tasks with the same finding are named."""

LABEL_WIDTH = 60
MESSAGE_WIDTH = 300
"""Characters of a message that are shown; `--json` has them all."""

USAGE = "Usage: vfx validate ENV [@ FILE ...] [-n N] [-c N] [--taskset.OPTION VALUE] [--json]"
HELP = """
Check the tasks of an environment without a model: do they load, is each prompt one, which are equal, do setup and
rewards run, does `check` hold, and what does doing nothing earn. Nothing is kept.

  ENV                       An id, a .py file, a folder, or module:Class.
  -n, --num-tasks N         Only the first N tasks.
  --include, --exclude      Only some tasks, as for vfx eval.
  -c, --max-concurrent N    Tasks at the same time (default 32).
  --taskset.OPTION VALUE    An option of the environment; vfx eval ENV --help lists them.
  --timeout.setup, .scoring Seconds for setup, and for rewards and check.
  @ FILE                    Read options from a TOML file; those of a run are passed over.
  --json                    The findings as JSON on stdout.

Exit code 0: nothing failed. 1: something did. 2: a mistake in the options.
"""


def command(ctx: typer.Context) -> None:
    """Check an environment's tasks."""
    argv = list(ctx.args)
    if any(word in ("-h", "--help") for word in argv):
        typer.echo(USAGE + "\n" + HELP.rstrip())
        return
    from vfx.cli.command import VALIDATE  # noqa: PLC0415
    from vfx.cli.resolve import resolve  # noqa: PLC0415

    resolved = resolve(argv, os.environ, VALIDATE)
    if resolved.is_demo:
        raise ConfigError(Mistake("no environment is named", "ENV", "such as vfx validate ./my_env.py"))
    raise typer.Exit(_validate(resolved.config, as_json="json" in resolved.switches))


def _validate(config: "EvalConfig", *, as_json: bool) -> int:
    from vfx.runner.validate import Finding, Validation  # noqa: PLC0415

    name = config.taskset.id
    try:
        found, code = _check(config)
    except ConfigError as error:
        if any(mistake.where != name for mistake in error.mistakes):
            raise  # Of the options, and not of the environment.
        found, code = Validation(0), None
        found.findings += [Finding("failed", "load", mistake.what) for mistake in error.mistakes]
    code = (1 if found.failed else 0) if code is None else code
    text = json.dumps(_record(name, found, code), indent=2) if as_json else "\n".join(_lines(name, found, code))
    typer.echo(redact(text))
    return code


def _check(config: "EvalConfig") -> tuple["Validation", int | None]:
    """Load the tasks and check them.

    Returns:
        What was found, and the exit code when a signal has decided it.
    """
    from vfx.cli.watched import run_watched  # noqa: PLC0415
    from vfx.runner.environment import Environment  # noqa: PLC0415
    from vfx.runner.plan import make_plan  # noqa: PLC0415
    from vfx.runner.validate import Validation, idle_config, validate  # noqa: PLC0415

    environment = Environment(idle_config(config))
    if mistakes := environment.mistakes():
        raise ConfigError(*mistakes)
    plan = make_plan(config)
    found = Validation(len(plan.tasks))

    shutdown = run_watched(
        lambda _: validate(environment, plan, found),
        lambda: f"{found.done}/{found.tasks} tasks  {found.failed} failed",
    )
    return found, shutdown.exit_code


def _lines(name: str, found: "Validation", code: int) -> Iterator[str]:
    from vfx.dashboard.words import one_line  # noqa: PLC0415

    for finding, tasks in found.groups():
        message = one_line(finding.message, MESSAGE_WIDTH)
        yield f"{finding.level:<8} {finding.check:<8} {message}{_about(tasks, found.tasks)}"
    earned = found.idle_reward
    parts = [f"{found.tasks} task{'' if found.tasks == 1 else 's'}"]
    if code in (0, 1) and found.tasks:
        parts.append(f"{found.checked} with a check" if found.checked else "none has a check")
    elif found.tasks:
        parts.append(f"interrupted after {found.done}")
    if earned.mean is not None:
        parts.append(f"doing nothing earns {earned.mean:.3f}")
    parts.append(f"{found.failed} failed, {found.warnings} warning{'' if found.warnings == 1 else 's'}")
    yield f"{name}: {'; '.join(parts)}"


def _about(tasks: Sequence[str], total: int) -> str:
    if not tasks:
        return ""
    if len(tasks) == total > 1:
        return " (every task)"
    from vfx.dashboard.words import one_line  # noqa: PLC0415

    named = ", ".join(one_line(task, LABEL_WIDTH) for task in tasks[:NAMED_TASKS])
    more = len(tasks) - NAMED_TASKS
    return f" ({named}{f' and {more} more' if more > 0 else ''})"


def _record(name: str, found: "Validation", code: int) -> dict[str, Any]:
    return {
        "environment": name,
        "tasks": found.tasks,
        "done": found.done,
        "with_check": found.checked,
        "idle_reward": found.idle_reward.to_record(),
        "failed": found.failed,
        "warnings": found.warnings,
        "findings": [
            {"level": finding.level, "check": finding.check, "message": finding.message, "tasks": list(tasks)}
            for finding, tasks in found.groups()
        ],
        "exit_code": code,
    }
