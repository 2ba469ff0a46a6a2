"""Servers as needed: one warm at the start, more when all are full, several starting at the same time."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from vfx.clients.base import Client
from vfx.errors import InterceptionError, RolloutError
from vfx.interception.base import ElasticSettings, Interception, Slot
from vfx.interception.fleet import Fleet
from vfx.interception.placement import Load, State, place
from vfx.interception.server import Server
from vfx.interception.session import Session
from vfx.interception.tunnel import OpenTunnel

__all__ = ["ElasticPool"]

log = logging.getLogger(__name__)

REPLACEMENTS = 3
FIRST_BACKOFF_S = 0.1


@dataclass(slots=True, eq=False)
class _Member:
    """A server of the pool."""

    server: Server
    state: State = State.STARTING
    rollouts: int = 0
    """Placed or reserved."""
    idle_since: float = 0.0


@dataclass(slots=True, eq=False)
class _Ticket:
    """One acquire that waits."""

    member: _Member | None = None
    """Where it has its place or reservation; None = nowhere yet."""
    error: RolloutError = field(default_factory=lambda: InterceptionError("the interception has stopped"))
    """What it fails with when it is settled without a place."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when it has a place on a ready server, or fails."""


class ElasticPool(Interception):
    """See the module. `placement` decides; what it decided is done by tasks of the fleet."""

    def __init__(self, settings: ElasticSettings, client: Client, *, open_tunnel: OpenTunnel | None = None) -> None:
        self._settings = settings
        self._client = client
        self._open_tunnel = open_tunnel
        self._fleet = Fleet()
        self._members: list[_Member] = []
        self._waiting: dict[_Ticket, None] = {}
        self._is_serving = False

    @property
    def num_servers(self) -> int:
        """See `Interception.num_servers`."""
        return self._fleet.num_up

    @property
    def peak_servers(self) -> int:
        """See `Interception.peak_servers`."""
        return self._fleet.peak

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Interception.serving`. The first server is started and not waited for."""
        async with self._fleet.running():
            self._members = []
            self._is_serving = True
            if self._settings.idle_timeout is not None:
                self._fleet.group.start_soon(self._close_idle, self._settings.idle_timeout, name="idle servers")
            self._add_member()
            try:
                yield
            finally:
                self._is_serving = False
                for ticket in list(self._waiting):
                    self._unreserve(ticket)
                    self._settle(ticket)

    @asynccontextmanager
    async def acquire(self, session: Session) -> AsyncGenerator[Slot]:
        """See `Interception.acquire`."""
        member = await self._reserve()
        try:
            async with member.server.slot(session) as slot:
                yield slot
        finally:
            self._release(member)

    async def _reserve(self) -> _Member:
        """A place on a ready server, already counted."""
        replacements = 0
        while True:
            try:
                return await self._wait_for_place()
            except RolloutError:
                if not self._is_serving or replacements == REPLACEMENTS:
                    raise
            await anyio.sleep(FIRST_BACKOFF_S * 2**replacements)
            replacements += 1

    async def _wait_for_place(self) -> _Member:
        ticket = _Ticket()
        if not self._is_serving:
            raise ticket.error
        self._waiting[ticket] = None
        is_taken = False
        try:
            self._place()
            await ticket.settled.wait()
            if ticket.member is None or not self._is_serving:
                raise ticket.error
            is_taken = True
            return ticket.member
        finally:
            # Cancelled or failed: the reservation is given back.
            self._waiting.pop(ticket, None)
            if ticket.member is not None and not is_taken:
                self._release(ticket.member)

    def _release(self, member: _Member) -> None:
        member.rollouts -= 1
        if not member.rollouts:
            member.idle_since = anyio.current_time()
        self._place()

    def _place(self) -> None:
        """Do what `placement` says: reserve at once, start and stop in the background."""
        if not self._is_serving:
            return
        has_room = any(m.state is State.READY and m.rollouts < self._settings.multiplex for m in self._members)
        if has_room:
            # Whoever waits for a server to start may have that room at once.
            for ticket in self._waiting:
                self._unreserve(ticket)
        tickets = [ticket for ticket in self._waiting if ticket.member is None]
        now = anyio.current_time()
        plan = place(
            len(tickets),
            [Load(m.state, m.rollouts, 0.0 if m.rollouts else now - m.idle_since) for m in self._members],
            multiplex=self._settings.multiplex,
            max_servers=self._settings.max_servers,
            max_starting=self._settings.max_starting,
            idle_timeout=self._settings.idle_timeout,
        )
        for position in plan.stop:
            self._members[position].state = State.DRAINING
            self._members[position].server.stop()
        for _ in range(plan.start):
            self._add_member()
        for ticket, position in zip(tickets, plan.assign, strict=False):
            ticket.member = self._members[position]
            ticket.member.rollouts += 1
            if ticket.member.state is State.READY:
                self._settle(ticket)

    def _unreserve(self, ticket: _Ticket) -> None:
        if ticket.member is not None:
            ticket.member.rollouts -= 1
            ticket.member = None

    def _settle(self, ticket: _Ticket) -> None:
        del self._waiting[ticket]
        ticket.settled.set()

    def _add_member(self) -> None:
        server = Server(self._client, open_tunnel=self._open_tunnel, max_body_bytes=self._settings.max_body_bytes)
        member = _Member(server)
        self._members.append(member)
        self._fleet.group.start_soon(self._keep, member, name="pool member")

    async def _keep(self, member: _Member) -> None:
        """Accompany a server from its start to its end."""
        try:
            await self._fleet.start(member.server)
        except RolloutError as error:
            log.warning("an interception server did not start: %s", error)
            self._members.remove(member)
            for ticket in self._reserved(member):
                ticket.member, ticket.error = None, error
                self._settle(ticket)
            self._place()
            return
        member.state = State.READY
        member.idle_since = anyio.current_time()
        for ticket in self._reserved(member):
            self._settle(ticket)
        self._place()
        await member.server.ended.wait()
        self._members.remove(member)
        self._fleet.forget(member.server)
        self._place()

    def _reserved(self, member: _Member) -> list[_Ticket]:
        return [ticket for ticket in self._waiting if ticket.member is member]

    async def _close_idle(self, idle_timeout: float) -> None:
        while True:
            idle = [m.idle_since for m in self._members if m.state is State.READY and not m.rollouts]
            # None that becomes idle from now on is due earlier.
            due = min(idle, default=anyio.current_time()) + idle_timeout
            await anyio.sleep(max(due - anyio.current_time(), idle_timeout / 10))
            self._place()
