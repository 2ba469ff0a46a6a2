"""Where plain hooks run: threads, a bounded number of them, each given up when its caller's deadline passes."""

import math
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread

from vfx.authoring.isolation import HookProcesses
from vfx.errors import TaskError

__all__ = ["MAX_HOOK_THREADS", "HookThreads"]

MAX_HOOK_THREADS = 16
PATIENCE_S = 1.0
"""How long a call waits for a place when every place is held by a hook that was given up."""


class HookThreads:
    """Places for plain hooks, and the processes for those with `isolate=True`.

    Python can't end a thread: a hook that goes on after its deadline is abandoned, and its place is free again only
    when it ends.
    """

    def __init__(self, max_threads: int = MAX_HOOK_THREADS) -> None:
        self.processes = HookProcesses()
        self._places = anyio.CapacityLimiter(max_threads)
        # Our places are the bound; an abandoned thread must not count as one of anyio's as well.
        self._threads = anyio.CapacityLimiter(math.inf)
        self._abandoned: set[_Call] = set()

    async def run(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function` in a thread.

        Args:
            what: The hook as messages name it.
            function: A plain function.
            arguments: Its arguments.

        Raises:
            TaskError: Every place is held by a hook that was abandoned.
        """
        call = _Call(what, function, arguments)
        await self._take_place(call)
        try:
            return await anyio.to_thread.run_sync(call.run, abandon_on_cancel=True, limiter=self._threads)
        finally:
            if call.give_up():
                self._abandoned.add(call)
            else:
                self._places.release_on_behalf_of(call)

    async def _take_place(self, call: "_Call") -> None:
        self._free_ended()
        try:
            self._places.acquire_on_behalf_of_nowait(call)
        except anyio.WouldBlock:
            await self._wait_for_place(call)

    async def _wait_for_place(self, call: "_Call") -> None:
        has_place = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_places, group.cancel_scope, name="places for hooks")
                await self._places.acquire_on_behalf_of(call)
                has_place = True
                group.cancel_scope.cancel()
        except BaseException:
            # The caller may be cancelled while the group ends.
            if has_place:
                self._places.release_on_behalf_of(call)
            raise
        if not has_place:
            raise TaskError(self._describe_abandoned())

    async def _watch_places(self, waiting: anyio.CancelScope) -> None:
        """Free places whose hooks end, and end the waiting when none of them does."""
        while True:
            await anyio.sleep(PATIENCE_S)
            self._free_ended()
            if len(self._abandoned) >= self._places.total_tokens:
                waiting.cancel()

    def _free_ended(self) -> None:
        """Free the places of abandoned hooks that have ended after all. Threads can't do that themselves."""
        for call in [call for call in self._abandoned if call.has_ended]:
            self._abandoned.discard(call)
            self._places.release_on_behalf_of(call)

    def _describe_abandoned(self) -> str:
        counts = Counter(call.what for call in self._abandoned)
        held = ", ".join(f"{what} ({count})" for what, count in counts.most_common(3))
        return (
            f"all {self._places.total_tokens:g} threads for hooks are held by ones that did not end at their deadline: "
            f"{held}; with isolate=True they would be killed there"
        )


class _Call:
    """One hook in a thread, which may be given up by the one who waits for it."""

    def __init__(self, what: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.what = what
        self.has_ended = False
        self._function = function
        self._arguments = arguments
        self._lock = threading.Lock()
        self._is_started = False
        self._is_given_up = False

    def run(self) -> Any:
        with self._lock:
            if self._is_given_up:
                return None
            self._is_started = True
        try:
            return self._function(*self._arguments)
        finally:
            self.has_ended = True

    def give_up(self) -> bool:
        """True when it was running and goes on; one that has not begun never will."""
        with self._lock:
            self._is_given_up = True
            return self._is_started and not self.has_ended
