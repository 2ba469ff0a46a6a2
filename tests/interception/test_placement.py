import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.interception.placement import Load, Placement, State, place

STARTING, READY, DRAINING = State.STARTING, State.READY, State.DRAINING

loads = st.builds(
    Load, state=st.sampled_from(State), rollouts=st.integers(0, 6), idle=st.floats(0, 100, allow_nan=False)
)
optional = st.none() | st.integers(1, 8)


@given(
    waiting=st.integers(0, 40),
    servers=st.lists(loads, max_size=8),
    multiplex=st.integers(1, 6),
    max_servers=optional,
    max_starting=st.integers(1, 5),
    idle_timeout=st.none() | st.floats(1, 50),
)
def test_every_plan_keeps_the_bounds_and_starts_no_more_than_needed(
    waiting: int,
    servers: list[Load],
    multiplex: int,
    max_servers: int | None,
    max_starting: int,
    idle_timeout: float | None,
) -> None:
    servers = [replace(server, rollouts=min(server.rollouts, multiplex)) for server in servers]
    plan = place(
        waiting,
        servers,
        multiplex=multiplex,
        max_servers=max_servers,
        max_starting=max_starting,
        idle_timeout=idle_timeout,
    )
    after = [server.rollouts for server in servers] + [0] * plan.start
    for position in plan.assign:
        after[position] += 1
    assert all(count <= multiplex for count in after)
    assert all(after[len(servers) :])
    assert not any(servers[n].state is DRAINING for n in plan.assign if n < len(servers))
    assert len(plan.assign) <= waiting
    starting = sum(server.state is STARTING for server in servers)
    assert plan.start <= max(0, max_starting - starting)
    assert max_servers is None or not plan.start or len(servers) + plan.start <= max_servers
    room = sum(multiplex - server.rollouts for server in servers if server.state is not DRAINING)
    assert plan.start <= -(-max(0, waiting - room) // multiplex)
    if len(plan.assign) < waiting:
        is_bounded = starting + plan.start >= max_starting
        assert is_bounded or (max_servers is not None and len(servers) + plan.start >= max_servers)
    for position in plan.stop:
        assert servers[position].state is not STARTING
        assert not after[position]
    if any(server.state is READY for server in servers):
        assert any(n not in plan.stop for n, server in enumerate(servers) if server.state is not DRAINING)


def test_the_fullest_with_room_comes_first_and_ready_before_starting() -> None:
    servers = [Load(READY, 1), Load(STARTING, 3), Load(READY, 2), Load(READY, 4)]
    assert place(4, servers, multiplex=4, max_starting=4).assign == (2, 2, 0, 0)


def test_reservations_on_starting_servers_count() -> None:
    servers = [Load(STARTING, 3)]
    assert place(2, servers, multiplex=4, max_starting=4) == Placement(assign=(0, 1), start=1)


def test_all_at_once_start_exactly_as_many_as_they_fill() -> None:
    plan = place(64, [], multiplex=4, max_starting=16)
    assert plan.start == 16
    assert sorted(plan.assign) == [n // 4 for n in range(64)]


@pytest.mark.parametrize(("max_servers", "max_starting", "starts"), [(None, 2, 2), (3, 9, 1), (2, 9, 0)])
def test_bounds_leave_the_rest_waiting(max_servers: int | None, max_starting: int, starts: int) -> None:
    servers = [Load(READY, 1), Load(DRAINING, 0)]
    plan = place(9, servers, multiplex=1, max_servers=max_servers, max_starting=max_starting)
    assert (plan.start, len(plan.assign)) == (starts, starts)


def test_idle_servers_are_closed_but_for_the_last() -> None:
    servers = [Load(READY, 0, 9), Load(READY, 1), Load(READY, 0, 9), Load(READY, 0, 1)]
    assert place(0, servers, multiplex=4, max_starting=4, idle_timeout=5).stop == (0, 2)
    assert place(0, [servers[0], servers[2]], multiplex=4, max_starting=4, idle_timeout=5).stop == (1,)
    assert place(0, servers, multiplex=4, max_starting=4).stop == ()


def test_idle_server_that_is_given_a_rollout_stays() -> None:
    servers = [Load(READY, 3), Load(READY, 0, 9), Load(READY, 0, 9)]
    assert place(2, servers, multiplex=4, max_starting=4, idle_timeout=5) == Placement(assign=(0, 1), stop=(2,))


def test_draining_server_is_closed_once_it_is_empty() -> None:
    assert place(1, [Load(DRAINING, 0), Load(DRAINING, 1)], multiplex=4, max_starting=4).stop == (0,)


@dataclass
class Pool:
    """The pool's bookkeeping without its tasks."""

    multiplex: int
    max_servers: int | None
    max_starting: int
    servers: list[Load] = field(default_factory=list[Load])
    waiting: int = 0
    placed: int = 0

    def settle(self) -> None:
        plan = place(
            self.waiting,
            self.servers,
            multiplex=self.multiplex,
            max_servers=self.max_servers,
            max_starting=self.max_starting,
        )
        self.servers += [Load(STARTING)] * plan.start
        for position in plan.assign:
            server = self.servers[position]
            self.servers[position] = replace(server, rollouts=server.rollouts + 1)
            self.placed += server.state is READY
        self.waiting -= len(plan.assign)

    def end_start(self, position: int, *, has_failed: bool) -> None:
        server = self.servers[position]
        if has_failed:
            del self.servers[position]
            self.waiting += server.rollouts
        else:
            self.servers[position] = replace(server, state=READY)
            self.placed += server.rollouts

    def end_rollout(self, position: int) -> None:
        server = self.servers[position]
        self.servers[position] = replace(server, rollouts=server.rollouts - 1)


@given(
    rollouts=st.integers(1, 60),
    multiplex=st.integers(1, 7),
    max_servers=optional,
    max_starting=st.integers(1, 4),
    seed=st.integers(),
)
def test_everyone_is_placed_in_the_end_though_starts_fail(
    rollouts: int, multiplex: int, max_servers: int | None, max_starting: int, seed: int
) -> None:
    chance = random.Random(seed)
    pool = Pool(multiplex, max_servers, max_starting, waiting=rollouts)
    for _ in range(2000):
        pool.settle()
        starting = [n for n, server in enumerate(pool.servers) if server.state is STARTING]
        busy = [n for n, server in enumerate(pool.servers) if server.state is READY and server.rollouts]
        if pool.placed == rollouts:
            break
        if starting and (not busy or chance.random() < 0.5):
            pool.end_start(chance.choice(starting), has_failed=chance.random() < 0.3)
        else:
            pool.end_rollout(chance.choice(busy))
    assert pool.placed == rollouts
    assert pool.waiting == 0
