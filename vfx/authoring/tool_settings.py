"""The options of tool servers: those that a class declares, and servers that a user adds by their URL."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import ConfigDict, Field, create_model, model_validator

from vfx.authoring.toolset import Toolset
from vfx.settings import Settings

__all__ = ["AddedServer", "ToolSettings", "tool_settings"]


class AddedServer(Settings):
    """A tool server that the environment does not know of: it runs elsewhere, and gets no state and no secret."""

    url: str = Field(pattern=r"^https?://")
    """Where it is: MCP over streamable HTTP."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers for every request. `env:NAME` is read from the environment; a literal value is masked when saved."""
    start_timeout: float = Field(default=30.0, gt=0)
    """Seconds until it must answer."""


class ToolSettings(Settings):
    """Tool servers by name. One that is not declared is added from outside, and needs a `url`."""

    model_config = ConfigDict(extra="allow")
    if not TYPE_CHECKING:  # A type checker takes it for one more field.
        __pydantic_extra__: dict[str, AddedServer]

    declared: ClassVar[Mapping[str, type[Toolset]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _known_or_added(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        entries = dict(cast("Mapping[str, Any]", data))
        for name, entry in entries.items():
            if name in cls.declared or isinstance(entry, AddedServer):
                continue
            if not isinstance(entry, Mapping) or "url" not in entry:
                raise ValueError(cls._unknown(name))
        # What one of them needs is then asked for by its own name.
        return {**{name: cast("Any", {}) for name in cls.declared}, **entries}

    @classmethod
    def _unknown(cls, name: str) -> str:
        near = difflib.get_close_matches(name, cls.declared, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(cls.declared) or 'none'}"
        return f"no tool server is called {name!r}, and one that is added needs a url{hint}"

    @property
    def servers(self) -> Mapping[str, Toolset | AddedServer]:
        """All of them by name."""
        return {**{name: getattr(self, name) for name in self.declared}, **(self.__pydantic_extra__ or {})}


def tool_settings(owner: str, declared: Mapping[str, type[Toolset]]) -> type[ToolSettings]:
    """The options of the tool servers that class `owner` declares."""
    fields: dict[str, Any] = {name: (toolset, ...) for name, toolset in declared.items()}
    model = create_model(f"{owner}Tools", __base__=ToolSettings, __module__=__name__, **fields)
    model.declared = declared
    return model
