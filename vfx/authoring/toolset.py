"""Tools for the model: a class whose marked methods are served over MCP, in a process of their own."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from pydantic import Field, field_validator

from vfx.authoring.caller import Caller, caller
from vfx.authoring.names import refuse_fields
from vfx.authoring.shared_state import SharedState
from vfx.authoring.state import State
from vfx.settings import Settings

__all__ = ["Caller", "Toolset", "Toolsets", "caller", "named_toolsets", "tool", "tool_methods"]

_MARK = "__vfx_tool__"
_SERVER_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
RESERVED = frozenset({"start", "stop", "state", "state_type", "task"})

F = TypeVar("F", bound=Callable[..., Any])


def tool(function: F, /) -> F:
    """Mark a toolset's method as a tool.

    Its name, docstring and signature are what the model is told: parameters need types, and are described in the
    docstring's `Args:` or by `Annotated[..., Field(description=...)]`. Plain ones run in threads. What it returns
    (text, a number, what JSON can hold, or parts of content) is the result; what it raises is told to the model.
    """
    setattr(function, _MARK, True)
    return function


class Toolset(Settings):
    """Subclass it and mark methods with `vfx.tool`. Fields are its configuration: `--taskset.tools.NAME.FIELD`."""

    state_type: ClassVar[type[State]] = State
    """What `state` is; the same as the task's. None declared = plain data."""

    url: str | None = None
    """A server that runs elsewhere, to be used in place of one of ours: it gets no state and no secret. None = ours."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers for `url`. `env:NAME` is read from the environment; a literal value is masked when saved."""
    start_timeout: float = Field(default=30.0, gt=0)
    """Seconds until it must answer."""
    call_timeout: float | None = Field(default=None, gt=0)
    """Seconds for one call, which then ends as an error that the model sees; None = unbounded."""
    max_restarts: int = Field(default=2, ge=0)
    """How often a server that all rollouts share is started again after its death."""
    colocated: bool = False
    """Whether a rollout's own server works in the folder and with the variables of the program; else it has its own."""
    env: tuple[str, ...] = ()
    """Names of variables that it gets from the environment of vfx, beside PATH, LANG, TZ and their like."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base) if _is_tool(vars(base)[name])}
        refuse_fields(cls, RESERVED | inherited)
        for name, method in vars(cls).items():
            if _is_tool(method):
                _check_tool(cls, name, method)

    @field_validator("url")
    @classmethod
    def _http_only(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("expected the URL of an MCP server, beginning with http:// or https://")
        return value

    @property
    def state(self) -> SharedState:
        """What the rollout that is calling shares with its other tools, its user, stops and rewards."""
        return SharedState(None if self.state_type is State else self.state_type)

    async def task(self) -> Mapping[str, Any]:
        """The data of the task that the calling rollout is about; plain tools ask `self.state.blocking.task()`."""
        return await self.state.task()

    async def start(self) -> None:
        """Prepare what the tools share; called once per server, before the first call."""

    async def stop(self) -> None:
        """Release it; called once, after the last call, and bounded by a few seconds."""


Toolsets = Mapping[str, type[Toolset]] | Sequence[type[Toolset]]
"""Tool servers by name; without names, each has that of its class in snake case."""


def _is_tool(method: object) -> bool:
    return getattr(method, _MARK, False) is True


def _check_tool(owner: type, name: str, method: Any) -> None:
    place = f"{owner.__name__}.{name}"
    if name in RESERVED or hasattr(Toolset, name) or not _TOOL_NAME.fullmatch(name):
        raise TypeError(f"{place}: no tool can have this name")
    for parameter in _parameters(method):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{place}: a tool is called with named arguments, which {parameter} can't be")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{place}: the parameter {parameter.name} has no type, which the model is told by")


def _parameters(method: Any) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(method).parameters.values())[1:]


def tool_methods(owner: type[Toolset]) -> Mapping[str, Callable[..., Any]]:
    """The marked methods of a class by name, inherited ones included, in the order of definition."""
    found: dict[str, Callable[..., Any]] = {}
    for base in reversed(owner.__mro__):
        for name, method in vars(base).items():
            if _is_tool(method):
                found[name] = method
            elif name in found:
                del found[name]
    return found


def named_toolsets(owner: str, toolsets: Toolsets) -> Mapping[str, type[Toolset]]:
    """Toolsets by name.

    Args:
        owner: The class that declares them, for messages.
        toolsets: As declared.

    Raises:
        TypeError: One is no toolset, or a name is taken or can't be one.
    """
    if isinstance(toolsets, Mapping):
        pairs = list(toolsets.items())
    else:
        pairs = [(_snake_case(getattr(toolset, "__name__", "")), toolset) for toolset in toolsets]
    for name, toolset in cast("list[tuple[str, object]]", pairs):
        if not (isinstance(toolset, type) and issubclass(toolset, Toolset)):
            raise TypeError(f"{owner}.toolsets: expected subclasses of vfx.Toolset, got {toolset!r:.80}")
        if not _SERVER_NAME.fullmatch(name):
            raise TypeError(f"{owner}.toolsets: expected a name of a-z, 0-9 and _, such as web_search, got {name!r}")
        if not tool_methods(toolset):
            raise TypeError(f"{owner}.toolsets: {toolset.__name__} has no tools: mark methods with @vfx.tool")
    if len(pairs) > len(dict(pairs)):
        raise TypeError(f"{owner}.toolsets: two of them have one name; give names by a mapping")
    return dict(pairs)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
