"""`vfx replay`: scores a finished run again, or runs its programs again on the answers that they were given.

What it needs is loaded once it is known to be needed.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vfx.errors import ConfigError, Mistake
from vfx.redaction import redact

if TYPE_CHECKING:
    from vfx._concurrency import Shutdown
    from vfx.cli.command import Command
    from vfx.cli.resolve import Resolved
    from vfx.runner.config import EvalConfig
    from vfx.runner.plan import Plan
    from vfx.runner.recorded import RecordedRun
    from vfx.runner.replay import Replay
    from vfx.runner.rerun import Rerun
    from vfx.runner.store import RunStore

__all__ = ["command"]

NAMED_TASKS = 3
"""How many of the tasks that are left out for one reason are named."""

LABEL_WIDTH = 60

USAGE = "Usage: vfx replay RUN_DIR [--rerun] [@ FILE ...] [--name NAME] [--fail-under X] [--OPTION VALUE] [--json]"
HELP = """
Score the finished rollouts of a run again with today's rewards and metrics, without a model. The results go to a new
run folder; the old one is only read. Options are those of the run, as its config.toml has them.

With --rerun the programs run again, too. Each rollout is answered with what the model said in it before: no model is
called and no key is needed. One that asks anything else has drifted, and is errored with what differs.

  RUN_DIR                   The folder of the run.
  --rerun                   Start the programs again, on the recorded answers.
  --dry-run                 Only print the options, with where each comes from.
  --taskset.OPTION VALUE    Another value for an option of the environment, its rewards included.
  --name NAME               Name of the new folder; else the time and a random part.
  --output-dir DIR          Where run folders are made.
  --replace                 Empty the run folder of that --name first.
  --fail-under X            Mean reward below which the exit code is 3.
  --max-error-share X       Share of errored rollouts above which the exit code is 1.
  -c, --max-concurrent N    Tasks that are scored at the same time; with --rerun, rollouts.
  --timeout.scoring S       Seconds for the rewards of a rollout; with --rerun the other stages have theirs.
  --harness.OPTION VALUE    With --rerun: another value for an option of the program.
  --interception.OPTION V   With --rerun: another value for an option of the endpoint that it calls.
  @ FILE                    Read options from a TOML file, over those of the run.
  --json                    The summary as JSON on stdout.

Exit codes are those of vfx eval.
"""


def command(ctx: typer.Context) -> None:
    """Score a finished run again, or run its programs again on recorded answers."""
    argv = list(ctx.args)
    if any(word in ("-h", "--help") for word in argv):
        typer.echo(USAGE + "\n" + HELP.rstrip())
        return
    from vfx.cli.command import command_of  # noqa: PLC0415
    from vfx.cli.resolve import resolve  # noqa: PLC0415

    of = command_of("replay", argv)
    folder = _run_folder(argv, of)
    # What the run was is in its own file: variables of today's shell don't change it.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VFX_")}
    resolved = resolve(argv, environ, of)
    if "dry-run" in resolved.switches:
        from vfx.cli.render import dry_run_lines  # noqa: PLC0415

        typer.echo(redact("\n".join(dry_run_lines(resolved.config, resolved.sources))))
        return
    raise typer.Exit(_replay(folder, resolved))


def _run_folder(argv: list[str], of: "Command") -> Path:
    """The folder that was named.

    Raises:
        ConfigError: None was, or it holds no run.
    """
    from vfx.cli.resolve import named_folder  # noqa: PLC0415
    from vfx.runner.store import CONFIG, TRACES  # noqa: PLC0415

    name = named_folder(argv, of)
    if name is None:
        raise ConfigError(Mistake("no run is named", "RUN_DIR", "such as vfx replay outputs/ENV--MODEL--chat/NAME"))
    folder = Path(name)
    if not folder.is_dir():
        is_there = "is not a folder" if folder.exists() else "there is no such folder"
        raise ConfigError(Mistake(is_there, f"RUN_DIR {name}"))
    if missing := [file for file in (CONFIG, TRACES) if not (folder / file).is_file()]:
        raise ConfigError(Mistake(f"is not a run folder: it has no {' and no '.join(missing)}", f"RUN_DIR {name}"))
    return folder


def _replay(folder: Path, resolved: "Resolved") -> int:
    from vfx.cli.layers import Precedence  # noqa: PLC0415
    from vfx.runner.plan import make_plan  # noqa: PLC0415
    from vfx.runner.recorded import RecordedRun  # noqa: PLC0415

    config = resolved.config
    name = resolved.sources.get("name")
    if name is None or name.precedence is not Precedence.FLAG:
        # The file's is the name of the old folder.
        config = config.model_copy(update={"name": None})
    recorded = RecordedRun(folder)
    carry_out = _run_again if "rerun" in resolved.switches else _carry_out
    run = carry_out(config, recorded, make_plan(config), replace="replace" in resolved.switches)
    record = run.to_record()
    text = json.dumps(record, indent=2) if "json" in resolved.switches else "\n".join(_lines(record))
    typer.echo(redact(text))
    return run.outcome().exit_code


def _carry_out(config: "EvalConfig", recorded: "RecordedRun", plan: "Plan", *, replace: bool) -> "Replay":
    from vfx.cli.watched import run_watched  # noqa: PLC0415
    from vfx.runner.replay import Replay, replay  # noqa: PLC0415
    from vfx.runner.saved_config import to_toml  # noqa: PLC0415
    from vfx.runner.store import CONFIG  # noqa: PLC0415

    store = _new_store(config, recorded, replace=replace)
    run = Replay(config, recorded, plan, store)
    try:
        store.write_whole(CONFIG, to_toml(config).encode())
        run_watched(lambda shutdown: replay(run, shutdown), run.progress)
    finally:
        store.close()
    return run


def _run_again(config: "EvalConfig", recorded: "RecordedRun", plan: "Plan", *, replace: bool) -> "Rerun":
    from vfx.cli.display import log_to, within_descriptors  # noqa: PLC0415
    from vfx.cli.watched import run_watched  # noqa: PLC0415
    from vfx.runner.rerun import Rerun, environment_of, rerun, select  # noqa: PLC0415
    from vfx.runner.saved_config import to_toml  # noqa: PLC0415
    from vfx.runner.store import CONFIG  # noqa: PLC0415

    most = within_descriptors(config)
    selection = select(recorded, plan)
    environment = environment_of(config, selection)
    environment.judging.admit(task for task, _ in selection.plan.tasks)
    if mistakes := environment.mistakes():
        raise ConfigError(*mistakes)
    store = _new_store(config, recorded, replace=replace)
    runs: list[Rerun] = []

    async def work(shutdown: "Shutdown") -> None:
        runs.append(Rerun.of(environment, selection, store, shutdown, most_concurrent=most))
        await rerun(runs[0])

    try:
        store.write_whole(CONFIG, to_toml(config).encode())
        with log_to(store, config.log_level):
            run_watched(work, lambda: runs[0].progress())
    finally:
        store.close()
    return runs[0]


def _new_store(config: "EvalConfig", recorded: "RecordedRun", *, replace: bool) -> "RunStore":
    from vfx.runner.store import RunStore, run_folder  # noqa: PLC0415

    target = run_folder(config, config.model or "")
    if replace and target.resolve() == recorded.folder.resolve():
        raise ConfigError(Mistake("is the run that is replayed", f"run folder {target}", "choose another --name"))
    return RunStore(target, replace=replace)


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    from vfx.dashboard.words import one_line  # noqa: PLC0415

    changes = record["replay"]
    done = record["scored"] + record["errored"]
    again = ", its programs run again" if changes.get("rerun") else ""
    yield f"replay of {record['replay_of']}{again}"
    yield f"{done} rollouts: {record['scored']} scored, {record['errored']} errored; {changes['changed']} changed"
    yield from _drift_lines(changes)
    for reason, count in changes["left_out"].items():
        tasks = changes["left_out_tasks"][reason]
        named = [one_line(task, LABEL_WIDTH) for task in tasks[:NAMED_TASKS]]
        more = f" and {len(tasks) - NAMED_TASKS} more" if len(tasks) > NAMED_TASKS else ""
        yield f"left out: {count}, because {reason} ({', '.join(named)}{more})"
    for name, count in changes["kept"].items():
        yield f"kept as recorded: {name}, {count} times; it needs the runtime or a judge"
    for name, count in changes["missing"].items():
        yield f"left out: {name}, {count} times; it needs the runtime or a judge and was not recorded"
    yield ""
    yield f"{'':<32}{'old':>9}{'new':>9}{'difference':>12}"
    for row in changes["differences"]:
        label = one_line(f"{row['kind']} {row['name']}", LABEL_WIDTH)
        yield f"{label:<32}{_number(row['old']):>9}{_number(row['new']):>9}{_number(row['difference'], sign='+'):>12}"
    if changes["most_changed"]:
        yield ""
        yield "changed most:"
    for change in changes["most_changed"]:
        label = f"{one_line(change['task'], LABEL_WIDTH)} #{change['rollout']}"
        yield f"  {label:<30}{_number(change['old']):>9}{_number(change['new']):>9}"
    yield ""
    for kind, count in record["errors"].items():
        if kind == "drift":
            continue  # Told above, line by line.
        yield f"{count} x {kind}: {one_line(record['error_examples'][kind])}"
    yield f"results     {record['run_dir']}"
    yield f"exit        {record['exit_code']}: {record['exit_reason']}"


def _drift_lines(changes: Mapping[str, Any]) -> Iterator[str]:
    """What became of the conversations of programs that ran again."""
    if not changes.get("rerun"):
        return
    from vfx.dashboard.words import one_line  # noqa: PLC0415

    if kept := changes["kept_errored"]:
        yield f"kept as recorded: {kept} rollouts that had no answer from their provider"
    if unasked := changes["unasked"]:
        yield f"asked for fewer answers than were recorded: {unasked} rollouts"
    yield f"drifted: {changes['drifted']}"
    for drift in changes["drifts"]:
        yield f"  {one_line(drift['task'], LABEL_WIDTH)} #{drift['rollout']}"
        yield from (f"    {line}" for line in drift["message"].splitlines())
    if (more := changes["drifted"] - len(changes["drifts"])) > 0:
        yield f"  and {more} more"


def _number(value: float | None, *, sign: str = "") -> str:
    return "none" if value is None else format(value, f"{sign}.3f")
