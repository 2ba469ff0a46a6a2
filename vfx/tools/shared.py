"""A tool server that all rollouts share: kept up, and known to be dead at once by those who use it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from vfx.authoring.toolset import Toolset
from vfx.errors import RunError, ToolsetError
from vfx.tools.server import ToolServerProcess

__all__ = ["SharedServer", "User"]

log = logging.getLogger(__name__)

DEATH_NOTICE_S = 0.01
RESTART_PAUSE_S = 0.3

Starter = Callable[[int], Awaitable[ToolServerProcess]]
"""Starts one, if it can be on a port; 0 = any."""


class User(Protocol):
    """A rollout that has a server open."""

    def fail(self, cause: str) -> None:
        """Take notice of its death."""
        ...


class SharedServer:
    """One toolset's server through its deaths."""

    def __init__(self, name: str, toolset: Toolset, start: Starter) -> None:
        """See the class.

        Args:
            name: What the environment calls it.
            toolset: What it serves.
            start: Starts its process.
        """
        self.name = name
        self.toolset = toolset
        self.restarts = 0
        """How often it was started again."""
        self._start = start
        self._process: ToolServerProcess | None = None
        self._end: str | None = None
        self._changed = anyio.Event()
        self._users: dict[User, ToolServerProcess] = {}
        self._is_stopping = False

    async def start(self) -> ToolServerProcess:
        """Bring it up for the first time.

        Raises:
            ToolsetError: It can't be.
        """
        self._process = await self._start(0)
        return self._process

    async def watch(self) -> None:
        """See to it that it is up, until `stop` or until its restarts are used up."""
        process = self._process
        while process is not None and not self._is_stopping:
            await process.program.ended()
            if self._is_stopping:
                return
            port, self._process = process.port, None
            cause = await process.death()
            for user in [user for user, used in self._users.items() if used is process]:
                user.fail(cause)
            # Its box goes before the next one comes.
            await process.stop()
            process = await self._restart(port, cause)

    async def _restart(self, port: int, cause: str) -> ToolServerProcess | None:
        while self.restarts < self.toolset.max_restarts:
            self.restarts += 1
            # What brought it down, such as the end of the process that it was forked from, may still be under way.
            await anyio.sleep(RESTART_PAUSE_S * self.restarts)
            log.warning("%s; it is started again (%d of %d)", cause, self.restarts, self.toolset.max_restarts)
            try:
                self._process = await self._start(port)
            except (ToolsetError, RunError) as error:
                cause = str(error)
            else:
                self._tell()
                return self._process
        log.error("%s; it is not started again", cause)
        self._end = cause
        self._tell()
        return None

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def open(self, tag: str, state: tuple[str, str], user: User) -> ToolServerProcess:
        """Open it for one rollout, which is told of its death until `release`.

        Args:
            tag: Known to that rollout alone.
            state: Where its state is, and the secret for it.
            user: The rollout.

        Raises:
            ToolsetError: It does not answer, or has died and is not started again.
        """
        while True:
            while (process := self._process) is None:
                if self._end is not None:
                    raise ToolsetError(self._end)
                await self._changed.wait()
            try:
                await process.open(tag, *state)
            except ToolsetError:
                if process.program.is_running:
                    raise
            # It may have died just now: that is no matter of those who come.
            if self._process is process and process.program.is_running:
                self._users[user] = process
                return process
            await anyio.sleep(DEATH_NOTICE_S)

    def release(self, user: User) -> None:
        """Tell that rollout nothing more."""
        self._users.pop(user, None)

    async def stop(self) -> None:
        """End it. Bounded, and safe to call twice."""
        self._is_stopping = True
        if self._process is not None:
            await self._process.stop()
