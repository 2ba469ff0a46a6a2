"""Where rollouts go in an elastic pool. Pure and synchronous: capacity is taken before anyone waits for anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Load", "Placement", "State", "place"]


class State(Enum):
    """What a server can do for rollouts."""

    STARTING = "starting"
    """It takes reservations, which are places once it is ready."""
    READY = "ready"
    DRAINING = "draining"
    """It keeps its rollouts and takes no more."""


@dataclass(frozen=True, slots=True)
class Load:
    """One server as placement sees it."""

    state: State
    rollouts: int = 0
    """Placed there, or reserved while it starts."""
    idle: float = 0.0
    """Seconds for which it has had none."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What is to be done now."""

    assign: tuple[int, ...] = ()
    """For each waiting rollout, the oldest first, the position of its server; those of new servers follow the given
    ones. Shorter than the line of the waiting when some must wait on."""
    start: int = 0
    """How many servers to start."""
    stop: tuple[int, ...] = ()
    """Positions of the servers to close."""


def place(
    waiting: int,
    servers: Sequence[Load],
    *,
    multiplex: int,
    max_servers: int | None = None,
    max_starting: int,
    idle_timeout: float | None = None,
) -> Placement:
    """Give the waiting rollouts their servers: ready ones before starting ones, the fullest that has room first.

    Args:
        waiting: How many rollouts have no place and no reservation.
        servers: All that exist.
        multiplex: Rollouts on one server.
        max_servers: Bound on the servers, draining ones included; None = unbounded.
        max_starting: Servers that may be starting at the same time.
        idle_timeout: Seconds after which an idle server is closed, the last one excepted; None = never.
    """
    open_places: list[tuple[bool, int, int]] = []
    for position, server in enumerate(servers):
        if server.state is not State.DRAINING and server.rollouts < multiplex:
            open_places.append((server.state is State.STARTING, multiplex - server.rollouts, position))
    open_places.sort()
    assign: list[int] = []
    for _, room, position in open_places:
        assign += [position] * min(room, waiting - len(assign))
    start = _count_starts(waiting - len(assign), servers, multiplex, max_servers, max_starting)
    for number in range(start):
        assign += [len(servers) + number] * min(multiplex, waiting - len(assign))
    return Placement(tuple(assign), start, _find_idle(servers, frozenset(assign), idle_timeout))


def _count_starts(
    homeless: int, servers: Sequence[Load], multiplex: int, max_servers: int | None, max_starting: int
) -> int:
    needed = -(-homeless // multiplex)
    starting = sum(server.state is State.STARTING for server in servers)
    allowed = max_starting - starting
    if max_servers is not None:
        allowed = min(allowed, max_servers - len(servers))
    return max(0, min(needed, allowed))


def _find_idle(servers: Sequence[Load], taken: frozenset[int], idle_timeout: float | None) -> tuple[int, ...]:
    drained: list[int] = []
    idle: list[int] = []
    for position, server in enumerate(servers):
        if server.rollouts or position in taken:
            continue
        if server.state is State.DRAINING:
            drained.append(position)
        elif server.state is State.READY and idle_timeout is not None and server.idle >= idle_timeout:
            idle.append(position)
    is_any_left = sum(server.state is not State.DRAINING for server in servers) > len(idle)
    # The oldest stays: it is the one that was warm from the start.
    return tuple(drained + (idle if is_any_left else idle[1:]))
