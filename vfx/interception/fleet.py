"""The servers of one interception, and the task group that they run in."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from vfx.errors import InterceptionError, RolloutError, root_cause
from vfx.interception.server import Server

__all__ = ["Fleet"]


class Fleet:
    """Starts servers, and stops them all in the end. A server belongs to the group's owner, not to who asked for it."""

    def __init__(self) -> None:
        self._servers: list[Server] = []
        self._group: TaskGroup | None = None
        self.peak = 0
        """The most that were up at one time."""

    @property
    def num_up(self) -> int:
        """How many are up."""
        return sum(server.is_up for server in self._servers)

    @property
    def group(self) -> TaskGroup:
        """For tasks that last as long as the fleet.

        Raises:
            InterceptionError: It is not running, or stopping.
        """
        if self._group is None:
            raise InterceptionError("the interception has stopped")
        return self._group

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Servers can be started inside; on leaving, what starts is cancelled and what is up is closed, last one first.

        Their closings overlap, so that the slowest one alone decides how long it takes.
        """
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for server in reversed(self._servers):
                        server.stop()
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            # Whoever is inside raises what it raises, as without a group.
            cause = root_cause(error)
            if cause is error:
                raise
            raise cause from cause.__cause__

    async def start(self, server: Server) -> None:
        """Bring `server` up.

        Raises:
            InterceptionError: It could not be.
        """
        self._servers.append(server)
        try:
            await self.group.start(server.run, name="interception server")
        except RolloutError:
            self._servers.remove(server)
            raise
        self.peak = max(self.peak, self.num_up)

    def forget(self, server: Server) -> None:
        """Hold a server no longer that has ended."""
        self._servers.remove(server)
