"""The controller by scripts of events, and by a provider that is only arithmetic; the limiter by tasks that wait."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from vfx.runner.concurrency import MOST_AUTO, Concurrency, Controller

pytestmark = pytest.mark.anyio


def play_round(controller: Controller, at: float, latency: float = 1.0) -> float:
    """Every allowed rollout asks once and is answered after `latency` seconds; returns when that was."""
    for _ in range(controller.limit):
        controller.answered(at, at + latency, controller.limit)
    return at + latency


def push_back(controller: Controller, at: float) -> None:
    controller.pushed_back(at, at, controller.limit)


def grown(rounds: int, most: int = MOST_AUTO) -> tuple[Controller, float]:
    controller, at = Controller(most), 1.0
    for _ in range(rounds):
        at = play_round(controller, at)
    return controller, at


def test_it_doubles_each_round_while_nothing_pushes_back() -> None:
    assert [grown(rounds)[0].limit for rounds in range(5)] == [8, 16, 32, 64, 128]


def test_it_never_exceeds_its_bound() -> None:
    assert grown(10, most=40)[0].limit == 40
    assert Controller(most=3).limit == 3


def test_a_push_back_takes_a_third_of_what_ran_and_ends_the_doubling() -> None:
    controller, at = grown(2)
    push_back(controller, at)
    assert controller.limit == 20
    play_round(controller, at)
    assert controller.limit == 20 + (32 - 20) // 4


def test_a_burst_of_push_backs_counts_once() -> None:
    controller, at = grown(2)
    for _ in range(16):
        controller.pushed_back(at - 0.5, at, 32)
    assert controller.limit == 20
    # What was sent before the decision tells nothing about it, whenever its answer comes.
    controller.pushed_back(at - 0.1, at + 1, 20)
    assert controller.limit == 20
    controller.pushed_back(at + 0.1, at + 1, 20)
    assert controller.limit == 16


def test_as_long_as_more_run_than_are_allowed_nothing_is_decided() -> None:
    controller, at = grown(2)
    push_back(controller, at)
    for second in range(20):
        controller.pushed_back(at + second, at + second, 32)
        for _ in range(20):
            controller.answered(at + second, at + second + 1, 32)
    assert controller.limit == 20


def test_the_limit_is_not_raised_when_it_is_not_reached() -> None:
    controller = Controller(MOST_AUTO)
    for second in range(50):
        controller.answered(second, second + 1, 5)
    assert controller.limit == 8


def test_at_least_one_rollout_may_run() -> None:
    controller = Controller(MOST_AUTO)
    for second in range(1, 40):
        push_back(controller, second)
    assert controller.limit == 1


def test_what_was_too_much_is_tried_again_ever_more_rarely() -> None:
    controller, at = grown(1)
    tries: list[int] = []
    for number in range(400):
        at = play_round(controller, at)
        if controller.limit >= 20:
            tries.append(number)
            push_back(controller, at)
    between = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert len(tries) < 12
    assert between[-1] > 2 * between[0]


def test_a_limit_that_is_gone_is_outgrown() -> None:
    controller, at = grown(1)
    push_back(controller, at)
    for _ in range(60):
        at = play_round(controller, at)
    assert controller.limit > 32


def test_latency_that_rises_with_the_limit_ends_its_growth() -> None:
    controller, at = Controller(MOST_AUTO), 1.0
    limits: list[int] = []
    for _ in range(200):
        at = play_round(controller, at, latency=max(1.0, controller.limit / 20))
        limits.append(controller.limit)
    assert max(limits) <= 48
    assert min(limits[20:]) >= 20


def test_calls_that_take_longer_by_themselves_are_told_from_a_queue() -> None:
    controller, at = grown(1)
    push_back(controller, at)
    before = controller.limit
    for _ in range(60):
        at = play_round(controller, at, latency=5.0)
    assert controller.limit > 2 * before


@dataclass
class Model:
    """Rollouts of one call each at a provider, in simulated time; a refused call comes again after half a second."""

    takes: Callable[["Model"], bool]
    latency: Callable[["Model"], float]
    controller: Controller = field(default_factory=lambda: Controller(MOST_AUTO))
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    now: float = 1.0
    flying: int = 0
    refused: int = 0
    peak: int = 0
    recent: list[float] = field(default_factory=list[float])

    def run(self, rollouts: int) -> float:
        """Returns the seconds that it took."""
        events: list[tuple[float, int, str, float]] = []
        running = started = done = 0
        hold = 0.0
        while done < rollouts:
            while running < self.controller.limit and started < rollouts:
                started, running = started + 1, running + 1
                heapq.heappush(events, (max(self.now, hold) + 0.001, started, "send", 0.0))
            self.now, number, what, sent = heapq.heappop(events)
            if what == "send" and self.now < hold:
                heapq.heappush(events, (hold + self.chance.random() * 0.5, number, "send", 0.0))
            elif what == "send" and not self.takes(self):
                self.refused += 1
                hold = self.now + 0.5
                self.controller.pushed_back(self.now, self.now, running)
                heapq.heappush(events, (hold + self.chance.random() * 0.5, number, "send", 0.0))
            elif what == "send":
                self.flying += 1
                self.peak = max(self.peak, self.flying)
                self.recent.append(self.now)
                seconds = self.latency(self) * self.chance.uniform(0.6, 1.4)
                heapq.heappush(events, (self.now + seconds, number, "answer", self.now))
            else:
                self.flying, running, done = self.flying - 1, running - 1, done + 1
                self.controller.answered(sent, self.now, running + 1)
        return self.now - 1.0


@pytest.mark.parametrize("most", [3, 24, 100, 300])
def test_a_provider_with_a_limit_in_flight_is_used_well_and_seldom_asked_for_more(most: int) -> None:
    model = Model(takes=lambda model: model.flying < most, latency=lambda model: 0.5)
    seconds = model.run(60 * most)
    assert seconds < 1.4 * 60 * 0.5
    assert model.refused < 10 + most


@pytest.mark.parametrize("servers", [5, 24, 100])
def test_a_provider_that_queues_is_used_well_and_not_flooded(servers: int) -> None:
    def latency(model: Model) -> float:
        return 0.5 * max(1.0, model.flying / servers)

    model = Model(takes=lambda model: True, latency=latency)
    seconds = model.run(60 * servers)
    assert seconds < 1.4 * 60 * 0.5
    assert model.peak <= max(3 * servers, 20)


async def test_a_fixed_number_is_a_hard_bound() -> None:
    concurrency = Concurrency(3)

    async def work() -> None:
        async with concurrency.place():
            assert concurrency.running <= 3
            await anyio.lowlevel.checkpoint()
            concurrency.answered(0.0, 1.0)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(work)
    assert (concurrency.running, concurrency.to_record()) == (0, {"mode": "fixed", "final": 3, "peak": 3})


async def test_who_waits_is_let_in_when_the_limit_grows() -> None:
    concurrency, leave = Concurrency("auto"), anyio.Event()

    async def work() -> None:
        async with concurrency.place():
            await leave.wait()

    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        assert (concurrency.running, concurrency.is_auto, concurrency.most) == (8, True, MOST_AUTO)
        for _ in range(8):
            concurrency.answered(1.0, 2.0)
        assert (concurrency.running, concurrency.limit) == (16, 16)
        concurrency.pushed_back(3.0, 3.0)
        assert (concurrency.running, concurrency.limit) == (16, 10)
        leave.set()
    assert concurrency.to_record() == {"mode": "auto", "final": 10, "peak": 16}


async def test_a_place_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    concurrency, order, leave = Concurrency(1), list[int](), anyio.Event()

    async def work(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            async with concurrency.place():
                order.append(number)
                await leave.wait()

    async with anyio.create_task_group() as group:
        scopes = [anyio.CancelScope() for _ in range(4)]
        for number, scope in enumerate(scopes):
            group.start_soon(work, number, scope)
        await anyio.wait_all_tasks_blocked()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        leave.set()
    assert order == [0, 2, 3]
    assert concurrency.running == 0


async def test_one_cancelled_at_the_moment_it_is_let_in_gives_its_place_back() -> None:
    concurrency, scope = Concurrency(1), anyio.CancelScope()

    async def work() -> None:
        with scope:
            async with concurrency.place():
                raise AssertionError("it was cancelled")

    async with anyio.create_task_group() as group, concurrency.place():
        group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    assert concurrency.running == 0
