"""Carries out `vfx eval` in front of a person: starts the loop, says what happens on stderr, prints the summary."""

import json
import logging
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from vfx._concurrency import Shutdown, shutdown_on_signals
from vfx.cli.summary import summary_lines
from vfx.errors import ConfigError
from vfx.redaction import redact
from vfx.runner.environment import Environment
from vfx.runner.evaluate import Run, evaluate
from vfx.runner.plan import Plan, make_plan
from vfx.runner.saved_config import to_toml
from vfx.runner.store import CONFIG, LOG, RunStore, run_folder

if TYPE_CHECKING:
    from vfx.cli.invocation import Invocation

__all__ = ["run_eval"]

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
TEARDOWN_PATIENCE_S = 1.0


def run_eval(invocation: "Invocation") -> int:
    """Run one eval to its end.

    Returns:
        The exit code.

    Raises:
        ConfigError: Something is wrong that could be known before anything was started.
    """
    config = invocation.config
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a log that can't show a character must not end a run.
        stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    environment = Environment(config)
    if mistakes := environment.mistakes():
        raise ConfigError(*mistakes)
    plan = make_plan(config)
    store = RunStore(run_folder(config, environment.model), replace=invocation.replace)
    try:
        store.write_whole(CONFIG, to_toml(environment.config).encode())
        with _log_to(store, config.log_level):
            _raise_descriptor_limit()
            prepared = _Prepared(environment, plan, store, invocation.is_demo)
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
    is_demo: bool


async def _run(prepared: _Prepared) -> Run:
    run = Run(prepared.environment, prepared.plan, prepared.store)
    async with anyio.create_task_group() as group:
        async with shutdown_on_signals(lambda shutdown: _say(_signal_line(shutdown, run))) as run.shutdown:
            if run.config.display != "none":
                _announce(run, is_demo=prepared.is_demo)
                group.start_soon(_report, run, name="progress")
            await evaluate(run)
        group.cancel_scope.cancel()
    return run


def _signal_line(shutdown: Shutdown, run: Run) -> str:
    if shutdown.is_forced:
        left = sorted(set(shutdown.waiting_for.values()))
        return f"ending at once{': waiting for ' + ', '.join(left) if left else ''}"
    name = signal.Signals(shutdown.signum or signal.SIGINT).name
    return (
        f"{name}: stopping {run.tally.running} running rollouts, keeping {run.tally.done} finished ones"
        f" in {run.folder}; once more to end at once"
    )


async def _report(run: Run) -> None:
    """A line when something has changed: often in the first seconds, then rarely, at least every 10 s."""
    pause, shown, stopping_since = FIRST_PAUSE_S, -1, None
    next_line = time.monotonic() + pause
    while True:
        await anyio.sleep(0.25)
        now = time.monotonic()
        if run.phase == "stopping" and run.shutdown.signum is not None:
            stopping_since = stopping_since or now
            if now - stopping_since > TEARDOWN_PATIENCE_S and run.shutdown.waiting_for:
                _say(f"waiting for {', '.join(sorted(set(run.shutdown.waiting_for.values())))}")
                stopping_since = now
        elif now >= next_line:
            if run.tally.done != shown or pause == LONGEST_PAUSE_S:
                _say(_progress_line(run))
                shown = run.tally.done
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
            next_line = now + pause


def _progress_line(run: Run) -> str:
    tally = run.tally
    reward = tally.reward.mean
    parts = [
        f"{tally.done}/{tally.planned} done",
        f"{tally.running} running",
        f"{tally.errored} errored",
        f"reward {'-' if reward is None else format(reward, '.3f')}",
        f"{_tokens(run)} tokens",
        f"{run.seconds:.0f} s",
    ]
    waiting = run.environment.client.waiting
    if waiting.calls:
        seconds = max(0.0, waiting.until - time.time())
        parts.append(f"{waiting.calls} calls waiting: {waiting.reason}, at most {seconds:.0f} s more")
    if run.phase == "starting":
        parts.append("starting")
    return "  ".join(parts)


def _tokens(run: Run) -> str:
    usage = run.tally.usage
    if usage.input_tokens is None and usage.output_tokens is None:
        return "?"
    return str((usage.input_tokens or 0) + (usage.output_tokens or 0))


def _announce(run: Run, *, is_demo: bool) -> None:
    config, environment, plan = run.config, run.environment, run.plan
    if is_demo:
        _say("no environment was named, so this is the demo: one-digit sums (vfx eval --help shows the rest)")
    rollouts = f"{len(plan.tasks)} tasks x {plan.num_rollouts} = {len(plan)} rollouts"
    _say(f"{config.taskset.id}: {rollouts}, {config.max_concurrent} at a time")
    _say(f"model {environment.model} at {environment.client.endpoint}; results in {run.folder}")


def _print_summary(run: Run, *, as_json: bool) -> None:
    record = run.to_record()
    if run.config.display != "none" and not as_json:
        _say(_progress_line(run))
    text = json.dumps(record, indent=2) if as_json else "\n".join(summary_lines(record))
    with suppress(BrokenPipeError):
        print(redact(text), flush=True)  # noqa: T201 - the command's result


def _say(line: str) -> None:
    # Whoever read our stderr may have gone; the run goes on.
    with suppress(OSError):
        print(f"vfx: {redact(line)}", file=sys.stderr, flush=True)  # noqa: T201 - the command's progress


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _log_to:  # noqa: N801 - used as a function
    """Everything that this process logs goes to the run's log while the context lasts; libraries from warnings on."""

    def __init__(self, store: RunStore, level: str) -> None:
        self._handler = logging.FileHandler(store.folder / LOG, encoding="utf-8", errors="backslashreplace")
        self._handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._level = level.upper()

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self._handler)
        logging.getLogger("vfx").setLevel(self._level)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


def _raise_descriptor_limit() -> None:
    """Many rollouts at once need many sockets; the soft limit is low by tradition, not for a reason."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _has_uvloop() -> bool:
    return os.name != "nt" and sys.implementation.name == "cpython"
