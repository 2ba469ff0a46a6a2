"""Carries out `vfx eval` in front of a person: starts the loop, says what happens on stderr, prints the summary."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import anyio

from vfx._concurrency import Shutdown, shutdown_on_signals
from vfx.cli.plain import progress_line, report, say
from vfx.cli.summary import summary_lines
from vfx.dashboard.terminal import is_usable
from vfx.errors import ConfigError
from vfx.redaction import redact
from vfx.runner.concurrency import MOST_AUTO
from vfx.runner.config import EvalConfig
from vfx.runner.descriptors import raise_limit, rollouts_within
from vfx.runner.environment import Environment
from vfx.runner.evaluate import Run, evaluate
from vfx.runner.plan import Plan, group_mistakes, make_plan
from vfx.runner.resume import Earlier, prepare
from vfx.runner.run_log import RunLog
from vfx.runner.store import LOG, RunStore

if TYPE_CHECKING:
    from vfx.cli.invocation import Invocation

__all__ = ["choose_display", "log_to", "run_eval", "within_descriptors"]


def run_eval(invocation: "Invocation") -> int:
    """Run one eval to its end.

    Returns:
        The exit code.

    Raises:
        ConfigError: Something is wrong that could be known before anything was started.
    """
    config = invocation.config
    most_concurrent = within_descriptors(config)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a log that can't show a character must not end a run.
        stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    environment = Environment(config, is_resumed=invocation.resume is not None)
    if mistakes := environment.mistakes():
        raise ConfigError(*mistakes)
    plan = make_plan(config)
    if mistakes := [*group_mistakes(plan), *environment.judging.admit(task for task, _ in plan.tasks)]:
        raise ConfigError(*mistakes)
    store, earlier = prepare(environment, plan, replace=invocation.replace, resume=invocation.resume)
    try:
        with log_to(store, config.log_level):
            prepared = _Prepared(environment, plan, store, earlier, most_concurrent, invocation.is_demo)
            run = anyio.run(_run, prepared, backend_options={"use_uvloop": _has_uvloop()})
    finally:
        store.close()
    _print_summary(run, as_json=invocation.as_json)
    return run.outcome().exit_code


@dataclass(frozen=True)
class _Prepared:
    """What is ready before the event loop runs."""

    environment: Environment
    plan: Plan
    store: RunStore
    earlier: Earlier
    most_concurrent: int
    is_demo: bool


async def _run(prepared: _Prepared) -> Run:
    most = prepared.most_concurrent
    run = Run(prepared.environment, prepared.plan, prepared.store, prepared.earlier, most_concurrent=most)
    async with anyio.create_task_group() as group:
        async with shutdown_on_signals(lambda shutdown: say(_signal_line(shutdown, run))) as run.shutdown:
            display = choose_display(run.config.display, sys.stderr, os.environ)
            if display != "none":
                _announce(run, is_demo=prepared.is_demo)
            # Inside, so that no signal ends the process while the terminal is not its own.
            with _watcher(run, display) as watch:
                if watch is not None:
                    group.start_soon(watch, name="display")
                await evaluate(run)
        group.cancel_scope.cancel()
    return run


def choose_display(setting: str, stream: TextIO, environ: Mapping[str, str]) -> str:
    """What a `--display` setting comes to: `live`, `plain` or `none`.

    Args:
        setting: The option's value.
        stream: Where progress goes.
        environ: The environment. `CI` and a `TERM` that can't move its cursor ask for plain lines.
    """
    if setting in ("plain", "none"):
        return setting
    can_redraw = is_usable(stream) and environ.get("TERM", "") not in ("", "dumb", "unknown")
    is_ci = environ.get("CI", "").lower() not in ("", "0", "false")
    return "live" if can_redraw and (setting == "live" or not is_ci) else "plain"


@contextmanager
def _watcher(run: Run, display: str) -> Generator[Callable[[], Coroutine[Any, Any, None]] | None]:
    """What shows the run while it lasts; None when nothing is to be shown."""
    if display != "live":
        yield partial(report, run) if display == "plain" else None
        return
    # Only now: most runs that are watched by nobody should not pay for loading it.
    from vfx.dashboard.live import show_live  # noqa: PLC0415
    from vfx.dashboard.terminal import Terminal  # noqa: PLC0415

    with Terminal() as terminal:
        yield partial(show_live, run, terminal)


def _signal_line(shutdown: Shutdown, run: Run) -> str:
    if shutdown.is_forced:
        left = sorted(set(shutdown.waiting_for.values()))
        return f"ending at once{': waiting for ' + ', '.join(left) if left else ''}"
    name = signal.Signals(shutdown.signum or signal.SIGINT).name
    return (
        f"{name}: stopping {run.tally.running} running rollouts, keeping {run.tally.done} finished ones"
        f" in {run.folder}; once more to end at once"
    )


def _announce(run: Run, *, is_demo: bool) -> None:
    config, environment, plan = run.config, run.environment, run.plan
    if is_demo:
        say("no environment was named, so this is the demo: one-digit sums (vfx eval --help shows the rest)")
    rollouts = f"{len(plan.tasks)} tasks x {plan.num_rollouts} = {len(plan)} rollouts"
    left = f", {run.num_owed} of them to be run" if run.num_owed != len(plan) else ""
    say(f"{config.taskset.id}: {rollouts}{left}, {_at_a_time(run)} at a time")
    if others := run.tally.planned - len(plan):
        say(f"{others} finished rollouts in the folder are not among them; they stay and count")
    say(f"model {environment.model} at {environment.client.endpoint}; results in {run.folder}")


def _at_a_time(run: Run) -> str:
    concurrency = run.concurrency
    return f"up to {concurrency.most} (auto)" if concurrency.is_auto else str(concurrency.most)


def _print_summary(run: Run, *, as_json: bool) -> None:
    record = run.to_record()
    if run.config.display != "none" and not as_json:
        say(progress_line(run))
    text = json.dumps(record, indent=2) if as_json else "\n".join(summary_lines(record))
    with suppress(BrokenPipeError):
        print(redact(text), flush=True)  # noqa: T201 - the command's result


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class log_to:  # noqa: N801 - used as a function
    """Everything that this process logs goes to the run's log while the context lasts; libraries from warnings on."""

    def __init__(self, store: RunStore, level: str) -> None:
        self._handler = RunLog(store.folder / LOG)
        self._handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._level = level.upper()

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self._handler)
        logging.getLogger("vfx").setLevel(self._level)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


def within_descriptors(config: EvalConfig) -> int:
    """How many rollouts at a time there may be open files and sockets for; says so when fewer than were asked for."""
    limit, wanted = raise_limit(), config.max_concurrent
    if wanted == "auto":
        return rollouts_within(limit, MOST_AUTO)
    most = rollouts_within(limit, wanted)
    if most < wanted:
        say(f"{most} rollouts at a time instead of {wanted}: {limit} open files are allowed here (ulimit -n)")
    return most


def _has_uvloop() -> bool:
    return os.name != "nt" and sys.implementation.name == "cpython"
