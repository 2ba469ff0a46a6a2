"""A fixed list of servers, all up from the start; a rollout lands on the least loaded."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from vfx.clients.base import Client
from vfx.errors import InterceptionError, RolloutError, RunError
from vfx.interception.base import Interception, ServerSettings, Slot, StaticSettings
from vfx.interception.fleet import Fleet
from vfx.interception.server import Server
from vfx.interception.session import Session
from vfx.interception.tunnel import OpenTunnel

__all__ = ["StaticPool"]


class StaticPool(Interception):
    """See the module. There is no bound on the rollouts of a server."""

    def __init__(self, settings: StaticSettings, client: Client, *, open_tunnel: OpenTunnel | None = None) -> None:
        self._settings: Sequence[ServerSettings] = settings.servers
        self._max_body_bytes = settings.max_body_bytes
        self._client = client
        self._open_tunnel = open_tunnel
        self._fleet = Fleet()
        self._loads: dict[Server, int] = {}

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
        """See `Interception.serving`."""
        bounds = [server.max_body_bytes or self._max_body_bytes for server in self._settings]
        servers = [Server(self._client, open_tunnel=self._open_tunnel, max_body_bytes=bound) for bound in bounds]
        async with self._fleet.running():
            await self._start(servers)
            self._loads = dict.fromkeys(servers, 0)
            try:
                yield
            finally:
                self._loads = {}

    async def _start(self, servers: Sequence[Server]) -> None:
        failures: list[RolloutError] = []

        async def start(server: Server) -> None:
            try:
                await self._fleet.start(server)
            except RolloutError as error:
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(start, server)
        if failures:
            raise RunError(f"the interception could not be started: {failures[0]}") from failures[0]

    @asynccontextmanager
    async def acquire(self, session: Session) -> AsyncGenerator[Slot]:
        """See `Interception.acquire`."""
        loads = self._loads
        if not loads:
            raise InterceptionError("the interception is not serving")
        server = min(loads, key=loads.__getitem__)
        loads[server] += 1
        try:
            async with server.slot(session) as slot:
                yield slot
        finally:
            loads[server] -= 1
