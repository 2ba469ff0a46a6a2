"""Structured shutdown over anyio: a scope that signals cancel, and grace periods that further signals cut short.

Besides, what keeps long work from holding up the event loop.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from vfx._signals import BlockedLoop, SignalInbox, exit_code, inbox

__all__ = [
    "LARGE_BODY",
    "Shutdown",
    "grace",
    "is_blocked_loop",
    "off_the_loop",
    "prompt_threads",
    "shutdown_on_signals",
]

LARGE_BODY = 256 * 1024
"""Bytes from which on a body is worth a thread: parsing takes about 2 ms per megabyte, waiting for a thread less."""

SWITCH_S = 0.0005
"""How long a thread may keep the others, the loop's among them, from running; Python's own number is ten times that."""

FORCED_RELEASE_S = 2.0
"""What is not a process on this host (a container, a tunnel, a registration) keeps this long after a second signal."""

Result = TypeVar("Result")


class Shutdown:
    """What signals have done to the command so far."""

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first signal; None as long as there was none."""
        self.is_forced = False
        """True from the second signal on: grace periods are over."""
        self.waiting_for: dict[anyio.CancelScope, str] = {}
        """Teardown steps under way, by their scope."""
        self.scope = anyio.CancelScope()
        """Cancelled by the first signal."""
        self._releases: set[anyio.CancelScope] = set()

    @property
    def exit_code(self) -> int | None:
        """130 or 143 after a signal, else None."""
        return None if self.signum is None else exit_code(self.signum)

    def receive(self, signum: int) -> None:
        """The first signal cancels the scope; each further one cuts every grace period, present and future."""
        if self.signum is None:
            self.signum = signum
            self.scope.cancel()
            return
        self.is_forced = True
        for scope in self.waiting_for:
            self._cut(scope)

    def _cut(self, scope: anyio.CancelScope) -> None:
        allowed = FORCED_RELEASE_S if scope in self._releases else 0.0
        scope.deadline = min(scope.deadline, anyio.current_time() + allowed)

    @contextmanager
    def grace(self, seconds: float, what: str, *, is_release: bool = False) -> Generator[anyio.CancelScope]:
        """See the module's `grace`."""
        with anyio.move_on_after(seconds, shield=True) as scope:
            self.waiting_for[scope] = what
            if is_release:
                self._releases.add(scope)
            if self.is_forced:
                self._cut(scope)
            try:
                yield scope
            finally:
                del self.waiting_for[scope]
                self._releases.discard(scope)


_current: ContextVar[Shutdown | None] = ContextVar("shutdown", default=None)


@contextmanager
def grace(seconds: float, what: str, *, is_release: bool = False) -> Generator[anyio.CancelScope]:
    """A bounded, shielded period for one teardown step; a second signal ends it at once.

    Args:
        seconds: The bound when nobody is in a hurry.
        what: What is being waited for, as shown to a user who is: "4 programs to end".
        is_release: The step releases something that is not a process on this host; it keeps 2 s after a second signal.
    """
    shutdown = _current.get() or Shutdown()
    with shutdown.grace(seconds, what, is_release=is_release) as scope:
        yield scope


@asynccontextmanager
async def shutdown_on_signals(
    announce: Callable[[Shutdown], None] = lambda shutdown: None, signals: SignalInbox = inbox
) -> AsyncGenerator[Shutdown]:
    """Run the body under a scope that the first SIGINT or SIGTERM cancels; swallows that cancellation.

    Args:
        announce: Called after each signal, to say what happens now.
        signals: Where signals arrive.
    """
    shutdown = Shutdown()
    token = _current.set(shutdown)
    try:
        async with anyio.create_task_group() as group:
            await group.start(_listen, shutdown, signals, announce, name="signals")
            with shutdown.scope:
                yield shutdown
            group.cancel_scope.cancel()
    finally:
        _current.reset(token)


async def _listen(
    shutdown: Shutdown,
    signals: SignalInbox,
    announce: Callable[[Shutdown], None],
    *,
    task_status: TaskStatus[None],
) -> None:
    reader = signals.open()
    try:
        task_status.started()
        while True:
            await anyio.wait_readable(reader)
            for signum in signals.take():
                shutdown.receive(signum)
                announce(shutdown)
    finally:
        # One that came while the body was ending still decides the exit code.
        for signum in signals.take():
            shutdown.receive(signum)
        signals.close()


def is_blocked_loop(error: BaseException) -> bool:
    """True when `error` is, or holds only, the exception that broke into code which blocked the event loop."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_blocked_loop, cast("tuple[BaseException, ...]", error.exceptions)))  # pyright: ignore[reportUnknownMemberType]
    return isinstance(error, BlockedLoop)


async def off_the_loop(work: Callable[[], Result], body_bytes: int) -> Result:
    """What `work` gives, in a thread when the body that it works on is large."""
    return await anyio.to_thread.run_sync(work) if body_bytes > LARGE_BODY else work()


@contextmanager
def prompt_threads() -> Generator[None]:
    """Threads give way to each other sooner while the context lasts: the loop waits less for code that burns CPU.

    Eight such threads held a loop up for 375 ms (99th percentile) with Python's own interval, and for 53 ms with this
    one, at no less work done.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
