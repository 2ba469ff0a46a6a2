"""One eval: every planned rollout, as many at a time as asked for, each kept as soon as it has ended."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import anyio

from vfx import __version__
from vfx._concurrency import Shutdown, is_blocked_loop
from vfx.errors import RunError
from vfx.redaction import redact
from vfx.runner.concurrency import Concurrency
from vfx.runner.config import EvalConfig
from vfx.runner.environment import Environment
from vfx.runner.episode import Episode, Episodes
from vfx.runner.plan import Identity, Plan, PlannedRollout
from vfx.runner.resume import Earlier
from vfx.runner.rollout import Rollout
from vfx.runner.scoring import has_group_rewards
from vfx.runner.store import SUMMARY, RunStore
from vfx.runner.summary import Tally
from vfx.trace.record import Trace

__all__ = ["Outcome", "Run", "evaluate", "judge"]

log = logging.getLogger(__name__)

FATAL_SAMPLE = 8
"""This many rollouts that all failed for the same fatal reason, and nothing else yet, end the run early."""
RETRY_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, for the shell and for people."""

    exit_code: int
    reason: str


@dataclass
class Run:
    """A run under way, as whoever watches it sees it."""

    environment: Environment
    plan: Plan
    store: RunStore
    earlier: Earlier = field(default_factory=Earlier)
    """What launches before this one have done."""
    shutdown: Shutdown = field(default_factory=Shutdown)
    """What signals have done to it so far."""
    phase: str = "starting"
    """`starting`, `running`, `stopping`, `done`."""
    ended: float | None = None
    """Seconds since the epoch; None while it goes on."""
    failure: str | None = None
    """Why the run as a whole can't go on; None when it can."""
    most_concurrent: int | None = None
    """Bound on the rollouts at a time, whatever was asked for; None = there is none."""
    running: dict[str, Trace] = field(default_factory=dict[str, Trace])
    """The traces of the attempts under way by their ids, the oldest first."""
    _fatal: list[str | None] = field(default_factory=list[str | None])
    _has_turned: bool = False

    def __post_init__(self) -> None:
        self.tally: Tally = self.earlier.tally
        """The numbers of all launches."""
        self.episodes = Episodes(self.plan, self.earlier)
        planned = {rollout.identity for rollout in self.plan} if self.earlier.finished else set[Identity]()
        self.tally.planned = len(self.plan) + len(self.earlier.finished - planned)
        self.tally.rollouts_per_task = self.plan.num_rollouts
        self.concurrency = Concurrency(self.config.max_concurrent, self.most_concurrent)
        """How many rollouts run at a time."""
        if self.concurrency.is_auto:
            self.environment.client.observer.listener = self.concurrency
        self.num_earlier = len(self.earlier.finished)
        """Rollouts that launches before this one have finished."""
        self.num_owed = sum(1 for _ in self.owed())
        """Rollouts that this launch has to run."""

    def owed(self) -> Iterator[PlannedRollout]:
        """The rollouts that this launch has to run, in order."""
        return (planned for planned in self.plan if not self.earlier.has_ended(planned.identity))

    @property
    def config(self) -> EvalConfig:
        """What was asked for."""
        return self.environment.config

    @property
    def folder(self) -> Path:
        """Where its results are kept."""
        return self.store.folder

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return (self.ended or time.time()) - self.tally.started

    @contextmanager
    def watched(self, trace: Trace) -> Generator[None]:
        """An attempt is among `running` while the context lasts."""
        self.running[trace.id] = trace
        try:
            yield
        finally:
            del self.running[trace.id]

    def outcome(self) -> Outcome:
        """The exit code and its cause, by the table in the documentation."""
        tally, config = self.tally, self.config
        if (code := self.shutdown.exit_code) is not None:
            return Outcome(code, "interrupted" if code == 130 else "terminated")
        if self.failure is not None:
            return Outcome(1, self.failure)
        return judge(tally, config)

    def to_record(self) -> dict[str, Any]:
        """The summary as plain data, in the form that `summary.json` keeps."""
        outcome, config = self.outcome(), self.config
        return {
            "schema_version": 1,
            "vfx_version": __version__,
            "environment": config.taskset.id,
            "model": self.environment.model,
            "harness": config.harness.id,
            "run_dir": str(self.folder),
            "started": self.tally.started,
            "seconds": round(self.seconds, 3),
            "tasks": len(self.plan.tasks),
            "rollouts_per_task": self.plan.num_rollouts,
            "earlier_rollouts": self.num_earlier,
            **self.tally.to_record(),
            "retries": self.environment.calls_sent_again,
            "tape": None if (tape := self.environment.client.tape) is None else asdict(tape),
            "injected_faults": dict(sorted(self.environment.injected_faults.items())),
            "concurrency": self.concurrency.to_record(),
            "tool_server_restarts": self.environment.tools.restarts,
            "peak_servers": self.environment.interception.peak_servers,
            "servers_left": self.environment.interception.num_servers,
            "exit_code": outcome.exit_code,
            "exit_reason": redact(outcome.reason),
        }

    def note(self, trace: Trace) -> None:
        """Count a finished rollout, and end the run when it can only go on failing."""
        self.tally.add(trace)
        # A judge that can't be asked spoils rollouts that went well until then.
        is_unjudged = bool(trace.errors) and trace.errors[0].kind == "scoring" and trace.errors[0].fatal is not None
        self._has_turned = self._has_turned or (trace.num_turns > 0 and not is_unjudged)
        if self._has_turned:
            return
        self._fatal.append(trace.errors[0].fatal if trace.errors else None)
        enough = min(self.num_owed, max(3, min(self.concurrency.most, FATAL_SAMPLE)))
        if len(self._fatal) >= enough and self._fatal[0] is not None and len(set(self._fatal)) == 1:
            self.failure = f"stopped after {enough} rollouts that all failed alike: {trace.errors[0].message}"


def judge(tally: Tally, config: EvalConfig) -> Outcome:
    """What the numbers of a run that came to its end say about it."""
    if not tally.scored:
        return Outcome(1, "nothing was scored")
    if tally.error_share > config.max_error_share:
        share = f"{tally.error_share:.0%} of the rollouts are errored"
        return Outcome(1, f"{share}, more than --max-error-share {config.max_error_share:g}")
    if config.fail_under is not None:
        reward = tally.reward.mean
        if reward is None or reward < config.fail_under:
            shown = "no mean reward" if reward is None else f"mean reward {reward:.4g}"
            return Outcome(3, f"{shown}, less than --fail-under {config.fail_under:g}")
    return Outcome(0, "finished")


async def evaluate(run: Run) -> Outcome:
    """Carry out a run; its summary is written whatever happens.

    Returns:
        How it ended. Errors of rollouts are data; one that ends the run is in the outcome.
    """
    run.tally.started = time.time()
    log.info("run of %d rollouts in %s, %d of them to be run", run.tally.planned, run.folder, run.num_owed)
    try:
        await _serve(run)
    except* RunError as group:
        run.failure = run.failure or "; ".join(dict.fromkeys(str(error) for error in _leaves(group)))
    finally:
        run.ended = time.time()
        run.phase = "done"
        for trace in run.episodes.waiting:
            run.tally.add_cost(trace)
        _keep_summary(run)
    return run.outcome()


async def _serve(run: Run) -> None:
    if not run.num_owed and not run.earlier.pending:
        return
    async with run.environment.serving():
        run.phase = "running"
        try:
            await _run_all(run)
        finally:
            run.phase = "stopping"


def _keep_summary(run: Run) -> None:
    try:
        run.store.write_whole(SUMMARY, json.dumps(run.to_record(), indent=2).encode() + b"\n")
    except RunError as error:
        run.failure = run.failure or str(error)
    outcome = run.outcome()
    log.info("exit code %d: %s", outcome.exit_code, outcome.reason)


def _leaves(group: BaseExceptionGroup[RunError]) -> Iterator[RunError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _run_all(run: Run) -> None:
    jobs = chain(
        (partial(_score, run, episode) for episode in run.episodes.complete()),
        (partial(_finish, run, planned) for planned in run.owed()),
    )
    workers = min(run.concurrency.most, run.num_owed + len(run.earlier.pending))
    async with anyio.create_task_group() as group:
        for number in range(workers):
            group.start_soon(_work, run, jobs, group.cancel_scope, name=f"worker {number}")


async def _work(run: Run, jobs: Iterator[Callable[[], Awaitable[None]]], everything: anyio.CancelScope) -> None:
    while True:
        async with run.concurrency.place():
            job = next(jobs, None)
            if job is None:
                return
            run.tally.running += 1
            try:
                await job()
            except RunError as error:
                # Results can't be kept any more: nothing that costs money goes on.
                run.failure = run.failure or str(error)
            finally:
                run.tally.running -= 1
            if run.failure is not None:
                everything.cancel()
                return


async def _finish(run: Run, planned: PlannedRollout) -> None:
    """Run one rollout to an end that counts, trying again where the configuration says so."""
    retries = run.config.retries
    for attempt in range(retries.max_attempts):
        rollout = Rollout(run.environment, planned, attempt)
        trace = rollout.trace
        try:
            with run.watched(trace):
                await rollout.run()
        except anyio.get_cancelled_exc_class():
            await _interrupted(run, trace)
            raise
        except BaseException as error:
            if not is_blocked_loop(error):
                raise
            # A signal has come and this rollout's code kept it waiting; the cancellation follows at once.
            await _interrupted(run, trace)
            await anyio.sleep_forever()
        error = trace.errors[0] if trace.errors else None
        is_last = attempt + 1 == retries.max_attempts
        if error is None or is_last or error.fatal is not None or error.kind not in retries.on:
            await _keep(run, planned, trace)
            if error is not None:
                log.warning("%s#%d errored: %s: %s", planned.task.key, planned.rollout, error.kind, error.message)
            return
        for client in run.environment.clients:
            client.discarded.update(trace.taped)
        log.info("%s#%d is tried again after: %s", planned.task.key, planned.rollout, error.message)
        run.tally.retried += 1
        run.tally.add_cost(trace)
        await run.store.append_attempt(trace, "retried")
        await anyio.sleep(RETRY_PAUSE_S * 2**attempt)


async def _keep(run: Run, planned: PlannedRollout, trace: Trace) -> None:
    """Keep a rollout that has ended, and its whole group when it was the last one of a group that is compared."""
    is_compared = has_group_rewards(planned.task)
    try:
        if is_compared and not trace.errors:
            await run.store.append_attempt(trace, "pending")
        if not is_compared or trace.errors:
            await run.store.append(trace)
            run.note(trace)
    except RunError:
        run.tally.interrupted += 1
        run.tally.add_cost(trace)
        raise
    if is_compared and (episode := run.episodes.end(planned, trace)):
        await _score(run, episode)


async def _score(run: Run, episode: Episode) -> None:
    seconds = run.config.seconds_for("scoring", episode.task)
    traces = await episode.score(run.environment.hook_threads, seconds)
    await run.store.append(*traces)
    run.episodes.close(episode)
    for trace in traces:
        run.note(trace)


async def _interrupted(run: Run, trace: Trace) -> None:
    run.tally.interrupted += 1
    run.tally.add_cost(trace)
    try:
        await run.store.append_attempt(trace, "interrupted")
    except RunError as error:
        run.failure = run.failure or str(error)
