"""The state of the rollout that calls a tool, as the tool reads and writes it."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from inspect import isawaitable
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
import anyio.from_thread
import anyio.lowlevel

from vfx.authoring.caller import Caller, caller
from vfx.authoring.state import State, read_state
from vfx.trace.record import encode_record, state_data

__all__ = ["BlockingState", "SharedState", "StateConflictError", "StateError"]

# Each failed try means that another process has written: with a few servers to a rollout it is soon one's own turn.
MAX_TRIES = 100

_locks: WeakValueDictionary[str, anyio.Semaphore] = WeakValueDictionary()
_changing: ContextVar[frozenset[str]] = ContextVar("changing", default=frozenset())


class StateError(Exception):
    """The state can't be read or written; the text says why."""


class StateConflictError(StateError):
    """Another process has written the state since it was read."""


class SharedState:
    """The state of whichever rollout is calling; `await` its methods, or use `blocking` in plain tools."""

    def __init__(self, state_type: type[State] | None) -> None:
        """See the class.

        Args:
            state_type: What it is; None = plain data, a mapping.
        """
        self._type = state_type

    @property
    def blocking(self) -> "BlockingState":
        """The same for plain tools, which run in threads."""
        return BlockingState(self)

    async def get(self) -> Any:
        """The state as it is now: an object of the toolset's `state_type`, a mapping when it declares none.

        Raises:
            StateError: There is none, or the rollout has ended.
        """
        return (await self.read(_rollout()))[0]

    async def put(self, state: State | Mapping[str, Any]) -> None:
        """Replace the state, whatever it is by now; `update` keeps what others have written.

        Raises:
            StateError: It does not fit, there is none, or the rollout has ended.
        """
        await self.write(_rollout(), state, None)

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[Any]:
        """Read, change in the body, write back at its end; an error in the body leaves the state as it was.

        The calls of a rollout to this process take turns. Tools of another process don't wait: if one of these has
        written meanwhile, the end raises, since a body can't be run twice; `update` tries again by itself.

        Raises:
            StateConflictError: Another process has written meanwhile; nothing was changed.
            StateError: As for `get` and `put`.
        """
        rollout = _rollout()
        with _marked(rollout):
            async with lock_of(rollout):
                state, version = await self.read(rollout)
                yield state
                await self.write(rollout, state, version)

    async def update(self, function: Callable[[Any], Any]) -> Any:
        """Change the state by `function`; no update is lost, whichever processes write at the same time.

        Args:
            function: Gets the state, and changes it or returns another one; plain or async. It is called again with
                the newer state when another process has written meanwhile.

        Returns:
            The state that was written.

        Raises:
            StateConflictError: Others wrote first, a hundred times in a row.
            StateError: As for `get` and `put`.
        """
        rollout = _rollout()
        with _marked(rollout):
            async with lock_of(rollout):
                for _ in range(MAX_TRIES):
                    state, version = await self.read(rollout)
                    made = function(state)
                    made = await made if isawaitable(made) else made
                    state = state if made is None else made
                    try:
                        await self.write(rollout, state, version)
                    except StateConflictError:
                        continue
                    return state
        raise StateConflictError(f"the state could not be written: others came first {MAX_TRIES} times")

    async def task(self) -> Mapping[str, Any]:
        """The data of the task that the calling rollout is about.

        Raises:
            StateError: This server knows of no rollout, or the rollout has ended.
        """
        return (await _ask("GET", _rollout(), "/task"))[0]

    async def read(self, rollout: Caller) -> tuple[Any, str]:
        """The state of a rollout, and its version."""
        data, version = await _ask("GET", rollout, "/state")
        try:
            return data if self._type is None else read_state(self._type, data), version
        except ValueError as error:
            name = cast("type[State]", self._type).__name__
            raise StateError(f"the rollout's state is no {name}: {error}") from error

    async def write(self, rollout: Caller, state: Any, version: str | None) -> None:
        """Replace the state of a rollout; with a version only if it still has that one."""
        if not isinstance(state, Mapping | (self._type or State)):
            expected = "a mapping" if self._type is None else f"a {self._type.__name__}"
            raise StateError(f"expected {expected} as the state, got {state!r:.100}")
        try:
            text = encode_record(state_data(state))
        except (TypeError, ValueError, RecursionError) as error:
            raise StateError(f"the state has no JSON form: {error}") from error
        await _ask("PUT", rollout, "/state", content=text, expected=version)


class BlockingState:
    """What `SharedState` does, for plain tools: each call waits. Get it as `self.state.blocking`."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def get(self) -> Any:
        """See `SharedState.get`."""
        return _waited(self._shared.get)

    def put(self, state: State | Mapping[str, Any]) -> None:
        """See `SharedState.put`."""
        _waited(self._shared.put, state)

    def update(self, function: Callable[[Any], Any]) -> Any:
        """See `SharedState.update`; `function` must be quick, as all other calls to this server wait for it."""
        return _waited(self._shared.update, function)

    def task(self) -> Mapping[str, Any]:
        """See `SharedState.task`."""
        return _waited(self._shared.task)

    @contextmanager
    def change(self) -> Generator[Any]:
        """See `SharedState.change`."""
        rollout = _rollout()
        with _marked(rollout):
            lock = _waited(_taken, rollout)
            try:
                state, version = _waited(self._shared.read, rollout)
                yield state
                _waited(self._shared.write, rollout, state, version)
            finally:
                anyio.from_thread.run_sync(lock.release)


def lock_of(rollout: Caller) -> anyio.Semaphore:
    """What the changes of one rollout's state by this process take turns by. No lock, which belongs to a task."""
    return _locks.setdefault(rollout.state_key, anyio.Semaphore(1))


async def _taken(rollout: Caller) -> anyio.Semaphore:
    lock = lock_of(rollout)
    await lock.acquire()
    return lock


@contextmanager
def _marked(rollout: Caller) -> Generator[None]:
    """Refuse a change within a change, which would wait for itself."""
    outer = _changing.get()
    if rollout.state_key in outer:
        raise StateError("the state is being changed already: a change can't hold another one")
    _changing.set(outer | {rollout.state_key})
    try:
        yield
    finally:
        _changing.set(outer)


def _rollout() -> Caller:
    found = caller.get(None)
    if found is None:
        raise StateError("there is no state here: no rollout of a run is calling")
    return found


def _waited(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return anyio.from_thread.run(function, *arguments)
    raise StateError("this would block every other call: await the methods of self.state in an async tool")


async def _ask(
    method: str, rollout: Caller, path: str, *, content: bytes | None = None, expected: str | None = None
) -> tuple[Any, str]:
    # It loads an HTTP library, which only tool servers need.
    http = import_module("vfx.clients.shared_state")
    try:
        answer = await http.ask(method, rollout.state_url + path, rollout.state_key, content=content, expected=expected)
    except OSError as error:
        raise StateError(str(error)) from error
    if answer.status == 412:
        raise StateConflictError("another tool server has written the state meanwhile: use update(function)")
    if answer.status >= 400:
        raise StateError(answer.reason)
    return answer.content, answer.tag
