"""What there is to see of a run at one moment, as plain data. Reads the run and changes nothing in it."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from vfx.dashboard.words import one_line
from vfx.messages import Usage
from vfx.redaction import redact
from vfx.runner.estimates import Estimate
from vfx.runner.evaluate import Run
from vfx.trace.record import Trace

__all__ = ["ErrorLine", "Row", "Snapshot", "Wait", "Watch"]

RATE_WINDOW_S = 60.0
ENOUGH_FOR_RATE = 10
"""With fewer rollouts in the window, the rate is that of the whole run."""
ESTIMATE_SHARE = 0.02
"""Share of the time that may go into computing the interval again."""
REPLY_CHARS = 160


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout under way."""

    name: str
    stage: str
    turns: int
    tokens: int | None
    """None when no provider told any."""
    seconds: float
    """Since it began."""
    idle: float
    """Seconds since a turn or a stage of it last ended."""
    reply: str
    """The model's last answer, on one line; "" before the first."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Calls that the client holds back."""

    calls: int
    reason: str
    until: float
    """Seconds since the epoch."""
    seconds: float
    """Until then."""


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """Errors that are alike."""

    count: int
    example: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    title: Sequence[str]
    """Environment, model, harness."""
    phase: str
    seconds: float
    """Since the run began."""
    planned: int
    scored: int
    errored: int
    interrupted: int
    running: int
    allowed: int | None
    """Rollouts that may run, where the run finds that out; None = the number was given."""
    stages: Mapping[str, int]
    """Rollouts under way by their stage."""
    reward: Estimate
    usage: Usage
    """Of all rollouts, those under way included."""
    unknown_usage: int
    """Turns without a count."""
    side_tokens: Mapping[str, int]
    """Of judges and simulated users, by purpose, as far as they are known."""
    rate: float | None
    """Rollouts a second; None until one is done."""
    token_rate: float | None
    remaining_seconds: float | None
    """Until all is done at this rate; None when there is none yet."""
    wait: Wait | None
    sent_again: int
    """Calls that the client had to repeat."""
    retried: int
    """Rollouts that were tried again."""
    injected: int
    """Faults that `--client.chaos` has made."""
    kinds: Mapping[str, int]
    """Errored rollouts by kind."""
    errors: Sequence[ErrorLine]
    """The most frequent first."""
    ending: Sequence[str]
    """What the end of the run waits for."""

    @property
    def done(self) -> int:
        """Rollouts that are scored or errored."""
        return self.scored + self.errored

    @property
    def waiting(self) -> int:
        """Rollouts that have not begun."""
        return max(0, self.planned - self.done - self.running - self.interrupted)


@dataclass(slots=True)
class _Cost:
    """What a rollout under way has used, counted call by call as they come."""

    calls: int = 0
    turns: int = 0
    unknown: int = 0
    usage: Usage = field(default_factory=Usage)

    def update(self, trace: Trace) -> None:
        for call in trace.calls[self.calls :]:
            if call.error is None:
                self.turns += bool(call.nodes)
                self.unknown += call.usage.output_tokens is None
                self.usage += call.usage
        self.calls = len(trace.calls)


class Watch:
    """Looks at a run again and again, at a cost that follows what has changed.

    Args:
        run: The run.
        clock: Seconds since the epoch.
    """

    def __init__(self, run: Run, clock: Callable[[], float] = time.time) -> None:
        self._run = run
        self._clock = clock
        self._costs: dict[str, _Cost] = {}
        self._samples: deque[tuple[float, int, int]] = deque()
        self._first: tuple[float, int] | None = None
        self._reward = run.tally.reward
        self._reward_of = run.tally.scored
        self._reward_due = 0.0

    def snapshot(self) -> Snapshot:
        """The run as it is now."""
        run, tally, now = self._run, self._run.tally, self._clock()
        self._costs = {id: self._costs.get(id) or _Cost() for id in run.running}
        usage, unknown = tally.usage, tally.calls_without_usage
        stages: Counter[str] = Counter()
        for id, trace in run.running.items():
            cost = self._costs[id]
            cost.update(trace)
            usage += cost.usage
            unknown += cost.unknown
            stages[_stage(trace)[0]] += 1
        rate, token_rate = self._rates(now, (usage.input_tokens or 0) + (usage.output_tokens or 0))
        left = tally.planned - tally.done - tally.interrupted
        title = (run.config.taskset.id, run.environment.model, run.config.harness.id)
        return Snapshot(
            title=[one_line(part, 60) for part in title],
            phase=run.phase,
            seconds=now - tally.started,
            planned=tally.planned,
            scored=tally.scored,
            errored=tally.errored,
            interrupted=tally.interrupted,
            running=tally.running,
            allowed=run.concurrency.limit if run.concurrency.is_auto else None,
            stages=stages,
            reward=self._estimate(),
            usage=usage,
            unknown_usage=unknown,
            side_tokens=tally.side_usage.tokens,
            rate=rate,
            token_rate=token_rate,
            remaining_seconds=left / rate if rate else None,
            wait=self._wait(now),
            sent_again=run.environment.calls_sent_again,
            retried=tally.retried,
            injected=run.environment.injected_faults.total(),
            kinds=dict(tally.errors),
            errors=[
                ErrorLine(cause.count, one_line(cause.example.removeprefix(f"{cause.kind}: ")), cause.advice)
                for cause in islice(tally.causes, 8)
            ],
            ending=sorted(set(run.shutdown.waiting_for.values())),
        )

    def rows(self, start: int, number: int) -> list[Row]:
        """Rollouts under way, the oldest first.

        Args:
            start: How many to leave out.
            number: How many at most.
        """
        now = self._clock()
        rows: list[Row] = []
        for id, trace in islice(self._run.running.items(), start, start + number):
            cost = self._costs.setdefault(id, _Cost())
            cost.update(trace)
            stage, since = _stage(trace)
            began = min((span.start for span in trace.timing.values()), default=now)
            last = trace.calls[-1].span.end if trace.calls else None
            spent = cost.usage
            known = (spent.input_tokens, spent.output_tokens) != (None, None)
            rows.append(
                Row(
                    name=one_line(f"{trace.task.name or trace.task.id or trace.task.key}#{trace.rollout}", 80),
                    stage=stage,
                    turns=cost.turns,
                    tokens=(spent.input_tokens or 0) + (spent.output_tokens or 0) if known else None,
                    seconds=max(0.0, now - began),
                    idle=max(0.0, now - max(since or began, last or 0.0)),
                    reply=one_line(redact(trace.last_reply[: 4 * REPLY_CHARS]), REPLY_CHARS),
                )
            )
        return rows

    def _estimate(self) -> Estimate:
        tally = self._run.tally
        if tally.scored != self._reward_of and time.perf_counter() >= self._reward_due:
            started = time.perf_counter()
            self._reward, self._reward_of = tally.reward, tally.scored
            cost = time.perf_counter() - started
            self._reward_due = started + cost / ESTIMATE_SHARE
        return self._reward

    def _rates(self, now: float, tokens: int) -> tuple[float | None, float | None]:
        """Rollouts and tokens a second of late."""
        done, samples = self._run.tally.done, self._samples
        self._first = self._first or (now, done)
        if not samples or now - samples[-1][0] >= 1.0:
            samples.append((now, done, tokens))
        while len(samples) > 1 and now - samples[1][0] >= RATE_WINDOW_S:
            samples.popleft()
        since, done_then, tokens_then = samples[0]
        if now <= since:
            return None, None
        token_rate = max(0, tokens - tokens_then) / (now - since)
        if done - done_then < ENOUGH_FOR_RATE:
            since, done_then = self._first
        rate = (done - done_then) / (now - since)
        return rate or None, token_rate

    def _wait(self, now: float) -> Wait | None:
        waiting = self._run.environment.waiting
        if not waiting.calls:
            return None
        return Wait(waiting.calls, one_line(redact(waiting.reason), 120), waiting.until, max(0.0, waiting.until - now))


def _stage(trace: Trace) -> tuple[str, float | None]:
    """The stage that a rollout is in, or was in last, and when it began or ended; None before the first."""
    name, span = next(((name, span) for name, span in reversed(trace.timing.items()) if name != "total"), (None, None))
    if name is None or span is None:
        return "starting", None
    if span.end is None:
        return name, span.start
    return ("ending" if name == "scoring" else name), span.end
