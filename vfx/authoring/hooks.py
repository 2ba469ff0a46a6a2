"""Decorators that turn a task's methods into rewards, metrics, stops and intercepts, and how these are called."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

if TYPE_CHECKING:
    from vfx.authoring.threads import HookThreads

__all__ = [
    "HOOK_KINDS",
    "LIFECYCLE_HOOKS",
    "Hook",
    "HookKind",
    "HookTable",
    "call_hook",
    "group_reward",
    "hook_table",
    "hooks_of",
    "intercept",
    "is_hook",
    "lifecycle_hook",
    "metric",
    "outside_hook",
    "reward",
    "stop",
]

HookKind = Literal["reward", "metric", "stop", "group_reward", "intercept"]
HOOK_KINDS: tuple[HookKind, ...] = ("reward", "metric", "stop", "group_reward", "intercept")
LIFECYCLE_HOOKS = ("setup", "finalize", "check")

_PARAMETERS = ("runtime", "state", "task", "trace")
# No trace yet, and no single one.
_SPECIAL_PARAMETERS = {
    "metric": ("judge", *_PARAMETERS),
    "reward": ("judge", *_PARAMETERS),
    "check": ("runtime", "task"),
    "group_reward": ("task", "traces"),
    "intercept": ("message", *_PARAMETERS),
    # Those of a user.
    "open": ("ask", *_PARAMETERS),
    "respond": ("ask", "messages", "turn", *_PARAMETERS),
}

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: HookKind
    weight: float = 1.0
    isolate: bool = False
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """One function that the runner calls: a method of a task class, or one that was configured."""

    name: str
    kind: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    is_async: bool
    weight: float = 1.0
    isolate: bool = False
    """Whether it runs in a process of its own, which is killed at the deadline."""
    is_method: bool = True
    direction: str = ""
    """What an intercept sees: "request" or "response"; "" for other hooks."""
    metrics: tuple[str, ...] = ()
    """Metrics that it records beside what it gives."""

    @property
    def label(self) -> str:
        """How messages name it: `reward 'exact'`."""
        return f"{self.kind.replace('_', ' ')} {self.name!r}"


HookTable = Mapping[HookKind, tuple[Hook, ...]]
"""The hooks of a task by kind."""


@overload
def reward(function: F, /) -> F: ...
@overload
def reward(*, weight: float = 1.0, isolate: bool = False) -> Callable[[F], F]: ...
def reward(function: F | None = None, /, *, weight: float = 1.0, isolate: bool = False) -> F | Callable[[F], F]:
    """Mark a task's method as a reward: a finite number, or a mapping of names to numbers.

    Args:
        function: The method, when the decorator is used without arguments.
        weight: Its share in the rollout's reward, which is the weighted sum.
        isolate: Run it in a process of its own, for code that burns CPU or may not end: it gets copies of its
            arguments (no `runtime`), and is killed when the stage's deadline passes.
    """
    mark = _marker(_Mark("reward", weight, isolate))
    return mark if function is None else mark(function)


@overload
def metric(function: F, /) -> F: ...
@overload
def metric(*, isolate: bool = False) -> Callable[[F], F]: ...
def metric(function: F | None = None, /, *, isolate: bool = False) -> F | Callable[[F], F]:
    """Mark a task's method as a metric: like a reward, but recorded beside it and not part of it.

    Args:
        function: The method, when the decorator is used without arguments.
        isolate: See `reward`.
    """
    mark = _marker(_Mark("metric", isolate=isolate))
    return mark if function is None else mark(function)


@overload
def stop(function: F, /) -> F: ...
@overload
def stop(*, isolate: bool = False) -> Callable[[F], F]: ...
def stop(function: F | None = None, /, *, isolate: bool = False) -> F | Callable[[F], F]:
    """Mark a task's method as a stop condition: asked before each model call, True ends the rollout there.

    Args:
        function: The method, when the decorator is used without arguments.
        isolate: See `reward`.
    """
    mark = _marker(_Mark("stop", isolate=isolate))
    return mark if function is None else mark(function)


@overload
def group_reward(function: F, /) -> F: ...
@overload
def group_reward(*, weight: float = 1.0, isolate: bool = False) -> Callable[[F], F]: ...
def group_reward(function: F | None = None, /, *, weight: float = 1.0, isolate: bool = False) -> F | Callable[[F], F]:
    """Mark a task's method as a reward that compares the task's rollouts: `traces` in, one number for each out.

    Called when all of them have ended; it may also ask for `task`, but not for `trace` or `runtime`.

    Args:
        function: The method, when the decorator is used without arguments.
        weight: Its share in each rollout's reward, which is the weighted sum.
        isolate: See `reward`.
    """
    mark = _marker(_Mark("group_reward", weight, isolate))
    return mark if function is None else mark(function)


def intercept(direction: Literal["request", "response"], /) -> Callable[[F], F]:
    """Mark a task's method as one that sees, and may change, what passes between the program and its model.

    It asks for `message` and returns the message that goes on in its place, or None to leave it as it is. The trace
    keeps both.

    Args:
        direction: "request": called once with each tool result before the model sees it, and what it made of one holds
            for the rest of the rollout; it may change the content. "response": called with each answer before the
            program sees it; it may change the text, and refuse tool calls by leaving them out.
    """
    if direction not in ("request", "response"):
        raise TypeError(f'vfx.intercept: expected "request" or "response", got {direction!r:.80}')
    return _marker(_Mark("intercept", direction=direction))


def _marker(mark: _Mark) -> Callable[[Any], Any]:
    if not math.isfinite(mark.weight):
        raise ValueError(f"a weight must be a finite number, got {mark.weight}")

    def apply(function: Any) -> Any:
        function.__vfx_hook__ = mark
        return function

    return apply


@lru_cache(maxsize=1024)
def hook_table(owner: type) -> HookTable:
    """The hooks that class `owner` has, by kind. Inherited ones are included, in the order of definition.

    Raises:
        TypeError: One asks for a parameter that hooks don't get, or can't be isolated.
    """
    functions: dict[str, tuple[Any, _Mark]] = {}
    for base in reversed(owner.__mro__):
        for name, function in vars(base).items():
            mark: _Mark | None = getattr(function, "__vfx_hook__", None)
            if mark is not None:
                functions[name] = (function, mark)
            elif name in functions:
                del functions[name]
    hooks = [_method(owner, name, function, mark) for name, (function, mark) in functions.items()]
    return {kind: tuple(hook for hook in hooks if hook.kind == kind) for kind in HOOK_KINDS}


def hooks_of(owner: type, kind: HookKind) -> tuple[Hook, ...]:
    """The hooks of one kind that class `owner` has; a task's own `hooks` has the configured ones, too."""
    return hook_table(owner)[kind]


def is_hook(function: object) -> bool:
    """True when a decorator of this module has marked `function`."""
    return hasattr(function, "__vfx_hook__")


@lru_cache(maxsize=1024)
def lifecycle_hook(owner: type, name: str) -> Hook | None:
    """The plain method `name` (setup, finalize, check) of class `owner` as a hook; None when the class has none."""
    function = getattr(owner, name, None)
    return None if function is None else _hook(f"{owner.__name__}.{name}", name, name, function, is_method=True)


def outside_hook(name: str, kind: HookKind, function: Callable[..., Any], weight: float | None) -> Hook:
    """A function that is no method as a hook; one that asks for `traces` is a group reward.

    Args:
        name: What its result is recorded under.
        kind: What it was configured as.
        function: The function; it may be marked by a decorator of this module, for `isolate`.
        weight: None = that of the mark, or 1.

    Raises:
        TypeError: It asks for a parameter that hooks don't get, or can't be isolated.
    """
    mark: _Mark = getattr(function, "__vfx_hook__", _Mark(kind))
    if kind == "reward" and "traces" in inspect.signature(function).parameters:
        kind = "group_reward"
    if weight is None:
        weight = mark.weight
    place = getattr(function, "__qualname__", name)
    return _hook(place, name, kind, function, weight=weight, isolate=mark.isolate, is_method=False)


def _method(owner: type, name: str, function: Callable[..., Any], mark: _Mark) -> Hook:
    place = f"{owner.__name__}.{name}"
    hook = _hook(place, name, mark.kind, function, weight=mark.weight, isolate=mark.isolate, is_method=True)
    return replace(hook, direction=mark.direction)


def _hook(
    place: str,
    name: str,
    kind: str,
    function: Callable[..., Any],
    *,
    weight: float = 1.0,
    isolate: bool = False,
    is_method: bool,
) -> Hook:
    parameters = tuple(inspect.signature(function).parameters)[1 if is_method else 0 :]
    known = _SPECIAL_PARAMETERS.get(kind, _PARAMETERS)
    if unknown := [parameter for parameter in parameters if parameter not in known]:
        asked = ", ".join(unknown)
        what = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('_', ' ')}"
        raise TypeError(f"{place} asks for {asked}; {what} hook may ask for: {', '.join(known)}")
    if isolate and (asked := [parameter for parameter in ("runtime", "judge") if parameter in parameters]):
        what = " and ".join(asked)
        raise TypeError(f"{place} asks for {what}, which can't go with it to another process: drop isolate=True")
    if "judge" in parameters and not inspect.iscoroutinefunction(function):
        raise TypeError(f"{place} asks for judge, whose answers it has to await: write async def")
    if isolate and "<locals>" in getattr(function, "__qualname__", ""):
        raise TypeError(f"{place} has isolate=True, which needs a class or function at the top level of its module")
    return Hook(name, kind, function, parameters, inspect.iscoroutinefunction(function), weight, isolate, is_method)


async def call_hook(hook: Hook, owner: object, available: Mapping[str, Any], threads: "HookThreads") -> Any:
    """Call `hook` with those of the `available` values that it asks for.

    A plain function runs in a worker thread, so that blocking code doesn't stall other rollouts; when the caller's
    deadline passes, the thread is abandoned. An isolated one runs in a process, which is then killed.

    Args:
        hook: What to call.
        owner: The task it is a method of.
        available: Values by the names of parameters.
        threads: Where it runs, if it is not async.
    """
    arguments = [available[name] for name in hook.parameters]
    if hook.is_method:
        arguments.insert(0, owner)
    if hook.isolate:
        # A stop hook is asked while the rollout goes on.
        in_use = hook.kind == "stop"
        return await threads.processes.call(hook.function, arguments, is_async=hook.is_async, in_use=in_use)
    if hook.is_async:
        return await hook.function(*arguments)
    return await threads.run(f"{hook.label} of {type(owner).__name__}", hook.function, *arguments)
