"""How many rollouts run at a time: a number that was given, or one that follows what the provider takes (`-c auto`).

`Controller` decides, without I/O: what the client saw goes in, the number of allowed rollouts comes out. `Concurrency`
is what rollouts wait on.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

import anyio
import anyio.lowlevel

__all__ = ["MOST_AUTO", "Concurrency", "Controller"]

log = logging.getLogger(__name__)

MOST_AUTO = 1024
"""More than this `auto` never allows."""
START = 8
SLOW_START = "slow start"
KEPT_AT_FIRST = 0.65
"""What is left of the limit after a push-back that ends the slow start."""
KEPT_LATER = 0.8
"""What is left of it after a later one."""
FEWEST_ANSWERS = 4
"""A round has no fewer: their mean would be chance."""
QUEUEING = 1.5
"""A latency this many times the best one, without more throughput, comes from a queue."""
WORTHWHILE = 1.25
"""A doubling that gives less than this much more throughput was not worth it, if the latency rose too."""
PATIENCE = 8
LONGEST_PATIENCE = 128
STALLED_ROUNDS = 32
"""After so many rounds of high latency it is tried whether fewer rollouts would lower it."""
FEWER = 0.75


@dataclass(slots=True)
class _Round:
    """What was seen since the limit was last looked at: about one round trip of every rollout."""

    size: int
    """The limit at its beginning, and the answers that it takes."""
    started: float | None = None
    """None until the first request of the run has its answer."""
    answers: int = 0
    own: int = 0
    """Answers to requests that were sent in this round."""
    latency: float = 0.0
    """Of these, summed up."""
    busiest: int = 0
    """The most rollouts that ran at a time."""


class Controller:
    """Decides how many rollouts may run, by what becomes of their requests. All times are seconds of one clock.

    It starts small and adds one for each answer, which doubles it in a round, as long as nothing pushes back (slow
    start); then it adds a few a round. A push-back takes a part away, once a round trip however many requests it met;
    how much was too much is remembered and is tried again ever more rarely. Where latency rises instead of throughput,
    requests queue and more are of no use.

    Args:
        most: What it never exceeds; at least 1.
        start: What it begins with.
    """

    def __init__(self, most: int, start: int = START) -> None:
        self._most = most
        self.limit = min(start, most)
        """Rollouts that may run."""
        self.reason = "start"
        """Why it is what it is."""
        self._round = _Round(self.limit)
        self._is_slow_start = True
        self._rate = 0.0
        """Answers a second in the last round; 0 before there was one."""
        self._backed_off = 0.0
        """When the limit was last lowered by a push-back."""
        self._best: float | None = None
        """The lowest mean latency of a round; None before the first."""
        self._ceiling: int | None = None
        """The limit that was pushed back; None = none was, or it has been passed since."""
        self._patience = PATIENCE
        """Rounds to wait just below the ceiling before it is tried again."""
        self._waited = 0
        self._stalled = 0
        self._before_probe: float | None = None
        """The latency before fewer rollouts were tried; None = they are not being tried."""

    def answered(self, sent: float, now: float, running: int) -> None:
        """A request that went out at `sent` has its whole answer; `running` rollouts run."""
        current = self._round
        current.answers += 1
        current.busiest = max(current.busiest, running)
        if current.started is None:
            current.started = sent
        is_slow = self._best is not None and now - sent > QUEUEING * self._best
        if self._is_slow_start and not is_slow and self.limit <= running and self.limit < 2 * current.size:
            # One by one, so that the first refusal comes before many more are on their way.
            self._set(self.limit + 1, SLOW_START)
        if sent < current.started:
            return
        current.own += 1
        current.latency += now - sent
        if current.own >= max(current.size, FEWEST_ANSWERS):
            self._end_round(current, now - current.started, now, running)

    def pushed_back(self, sent: float, now: float, running: int) -> None:
        """A request that went out at `sent` was refused since there were too many; `running` rollouts run."""
        # One from before the last decision belongs to the same burst. And as long as more run than are allowed,
        # what was decided has not come to bear.
        if sent < self._backed_off or running > self.limit:
            return
        ceiling = max(running, 1)
        is_known = self._ceiling is not None and abs(ceiling - self._ceiling) <= _step(ceiling)
        self._patience = min(2 * self._patience, LONGEST_PATIENCE) if is_known else PATIENCE
        self._ceiling = ceiling
        self._set(int(ceiling * (KEPT_AT_FIRST if self._is_slow_start else KEPT_LATER)), "pushed back")
        self._is_slow_start = False
        self._waited = self._stalled = 0
        self._before_probe = None
        self._backed_off = now
        self._round = _Round(self.limit, now)

    def _end_round(self, ended: _Round, seconds: float, now: float, running: int) -> None:
        self._round = _Round(self.limit, now)
        if running > self.limit:
            return
        latency = ended.latency / ended.own
        rate = ended.answers / max(seconds, 1e-9)
        self._best = latency if self._best is None else min(self._best, latency)
        # With fewer rollouts than are allowed there is nothing to learn about more.
        if ended.busiest < ended.size:
            return
        is_slower = latency > QUEUEING * self._best
        if self._before_probe is not None:
            self._end_probe(latency)
        elif self._is_slow_start:
            self._is_slow_start = not (is_slower and rate < WORTHWHILE * self._rate)
            if not self._is_slow_start:
                self._set(ended.size, "latency rises instead of throughput")
        elif is_slower:
            self._stall(latency)
        else:
            self._add()
        self._rate = rate
        self._round.size = self.limit

    def _add(self) -> None:
        self._stalled = 0
        gap = 0 if self._ceiling is None else self._ceiling - self.limit
        wanted = self.limit + max(_step(self.limit), gap // 4)
        if self._ceiling is not None and wanted >= self._ceiling:
            below = self._ceiling - 1
            self._waited += 1
            if self.limit >= self._ceiling:
                self._ceiling = None
            elif self.limit < below:
                wanted = below
            elif self._waited <= self._patience:
                return
            else:
                self._waited, wanted = 0, self._ceiling
        self._set(wanted, "nothing pushes back")

    def _stall(self, latency: float) -> None:
        """Add nothing. Now and then find out whether it is the queue that is long, or the calls are."""
        self._stalled += 1
        fewer = int(self.limit * FEWER)
        if self._stalled >= STALLED_ROUNDS and fewer:
            self._stalled = 0
            self._before_probe = latency
            self._set(fewer, "is latency lower with fewer?")

    def _end_probe(self, latency: float) -> None:
        before, self._before_probe = self._before_probe, None
        if before is not None and latency > before * (1 + FEWER) / 2:
            # Fewer did not help: the calls themselves take longer than those at the beginning.
            self._best = latency
        self._set(round(self.limit / FEWER), "as before the trial")

    def _set(self, wanted: int, reason: str) -> None:
        self.limit = max(1, min(wanted, self._most))
        self.reason = reason


def _step(limit: int) -> int:
    return max(1, isqrt(limit) // 2)


class Concurrency:
    """What rollouts wait on before they begin, in the order in which they came.

    Args:
        setting: Rollouts at a time, or `auto`.
        most: Bound on them, whatever the setting; None = there is none but that of `auto`.
    """

    def __init__(self, setting: int | Literal["auto"], most: int | None = None) -> None:
        wanted = MOST_AUTO if setting == "auto" else setting
        self.most = wanted if most is None else min(wanted, most)
        """What is never exceeded."""
        self._controller = Controller(self.most) if setting == "auto" else None
        self.limit = self._controller.limit if self._controller else self.most
        """Rollouts that may run now."""
        self.running = 0
        self.peak = 0
        """The most that ran at a time."""
        self._waiting: deque[anyio.Event] = deque()
        self._logged = self.limit

    @property
    def is_auto(self) -> bool:
        """True when the limit follows what the provider takes."""
        return self._controller is not None

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """One rollout's place, as long as the context lasts."""
        await self._acquire()
        try:
            yield
        finally:
            self.running -= 1
            self._admit()

    async def _acquire(self) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        turn = anyio.Event()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.running -= 1
                self._admit()
            else:
                self._waiting.remove(turn)
            raise

    def _admit(self) -> None:
        while self._waiting and self.running < self.limit:
            self.running += 1
            self.peak = max(self.peak, self.running)
            self._waiting.popleft().set()

    def answered(self, sent: float, now: float) -> None:
        """See `Listener.answered`."""
        if self._controller is not None:
            self._controller.answered(sent, now, self.running)
            self._follow(self._controller)

    def pushed_back(self, sent: float, now: float) -> None:
        """See `Listener.pushed_back`."""
        if self._controller is not None:
            self._controller.pushed_back(sent, now, self.running)
            self._follow(self._controller)

    def _follow(self, controller: Controller) -> None:
        if controller.limit == self.limit:
            return
        self.limit = controller.limit
        # The steps of the slow start are too many.
        if controller.reason != SLOW_START or self.limit >= 2 * self._logged:
            log.debug("%d rollouts at a time instead of %d: %s", self.limit, self._logged, controller.reason)
            self._logged = self.limit
        self._admit()

    def to_record(self) -> dict[str, Any]:
        """As `summary.json` keeps it."""
        return {"mode": "auto" if self.is_auto else "fixed", "final": self.limit, "peak": self.peak}
