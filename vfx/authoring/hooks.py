"""Decorators that turn a task's methods into rewards, metrics and stop conditions, and how such methods are called."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, overload

import anyio
import anyio.to_thread

__all__ = ["HOOK_PARAMETERS", "Hook", "HookKind", "call_hook", "hooks_of", "lifecycle_hook", "metric", "reward", "stop"]

HookKind = Literal["reward", "metric", "stop"]
HOOK_PARAMETERS = frozenset({"trace", "runtime", "task"})
"""What a hook may ask for by the name of a parameter."""

MAX_HOOK_THREADS = 16

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: HookKind
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Hook:
    """One method of a task class that the runner calls."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    is_async: bool
    weight: float = 1.0


@overload
def reward(function: F, /) -> F: ...
@overload
def reward(*, weight: float = 1.0) -> Callable[[F], F]: ...
def reward(function: F | None = None, /, *, weight: float = 1.0) -> F | Callable[[F], F]:
    """Mark a task's method as a reward: a finite number, or a mapping of names to numbers.

    Args:
        function: The method, when the decorator is used without arguments.
        weight: Its share in the rollout's reward, which is the weighted sum.
    """
    mark = _marker(_Mark("reward", weight))
    return mark if function is None else mark(function)


@overload
def metric(function: F, /) -> F: ...
@overload
def metric() -> Callable[[F], F]: ...
def metric(function: F | None = None, /) -> F | Callable[[F], F]:
    """Mark a task's method as a metric: like a reward, but recorded beside it and not part of it."""
    mark = _marker(_Mark("metric"))
    return mark if function is None else mark(function)


@overload
def stop(function: F, /) -> F: ...
@overload
def stop() -> Callable[[F], F]: ...
def stop(function: F | None = None, /) -> F | Callable[[F], F]:
    """Mark a task's method as a stop condition: asked before each model call, True ends the rollout there."""
    mark = _marker(_Mark("stop"))
    return mark if function is None else mark(function)


def _marker(mark: _Mark) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        function.__vfx_hook__ = mark
        return function

    return apply


@lru_cache(maxsize=1024)
def hooks_of(owner: type, kind: HookKind) -> tuple[Hook, ...]:
    """The hooks of one kind that class `owner` has, inherited ones included, in the order of definition.

    Raises:
        TypeError: One asks for a parameter that hooks don't get.
    """
    functions: dict[str, tuple[Any, _Mark]] = {}
    for base in reversed(owner.__mro__):
        for name, function in vars(base).items():
            mark: _Mark | None = getattr(function, "__vfx_hook__", None)
            if mark is not None:
                functions[name] = (function, mark)
            elif name in functions:
                del functions[name]
    return tuple(
        _hook(owner, name, function, mark.weight) for name, (function, mark) in functions.items() if mark.kind == kind
    )


@lru_cache(maxsize=1024)
def lifecycle_hook(owner: type, name: str) -> Hook | None:
    """The plain method `name` (setup, finalize) of class `owner` as a hook; None when the class has none."""
    function = getattr(owner, name, None)
    return None if function is None else _hook(owner, name, function, 1.0)


def _hook(owner: type, name: str, function: Callable[..., Any], weight: float) -> Hook:
    parameters = tuple(inspect.signature(function).parameters)[1:]
    if unknown := [parameter for parameter in parameters if parameter not in HOOK_PARAMETERS]:
        known = ", ".join(sorted(HOOK_PARAMETERS))
        raise TypeError(f"{owner.__name__}.{name} asks for {', '.join(unknown)}; a hook may ask for: {known}")
    return Hook(name, function, parameters, inspect.iscoroutinefunction(function), weight)


async def call_hook(hook: Hook, owner: object, available: Mapping[str, Any], limiter: anyio.CapacityLimiter) -> Any:
    """Call `hook` of `owner` with those of the `available` values that it asks for.

    A plain function runs in a worker thread, so that blocking code doesn't stall other rollouts; when the caller's
    deadline passes, the thread is abandoned.
    """
    arguments = [available[name] for name in hook.parameters]
    if hook.is_async:
        return await hook.function(owner, *arguments)
    return await anyio.to_thread.run_sync(hook.function, owner, *arguments, abandon_on_cancel=True, limiter=limiter)
