from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import vfx
from vfx.authoring.toolset import Toolsets, named_toolsets, tool_methods


class WebSearch(vfx.Toolset):
    size: int = 3

    @vfx.tool
    def first(self, text: str) -> str:
        """Finds."""
        return text

    @vfx.tool
    async def second(self) -> None:
        """Finds more."""

    def helper(self) -> None:
        """No tool."""


def test_tools_are_the_marked_methods_in_their_order_inherited_ones_included() -> None:
    class More(WebSearch):
        @vfx.tool
        def third(self) -> None:
            """One more."""

        def second(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """No tool any more."""

    assert list(tool_methods(WebSearch)) == ["first", "second"]
    assert list(tool_methods(More)) == ["first", "third"]


def test_toolsets_without_names_have_those_of_their_classes() -> None:
    class HTTPFetch(WebSearch):
        pass

    assert named_toolsets("T", [WebSearch, HTTPFetch]) == {"web_search": WebSearch, "http_fetch": HTTPFetch}


@pytest.mark.parametrize(
    ("toolsets", "told"),
    [
        ({"Web": WebSearch}, "expected a name of a-z, 0-9 and _"),
        ({"web": str}, "expected subclasses of vfx.Toolset"),
        ([WebSearch, WebSearch], "two of them have one name"),
        ([vfx.Toolset], "Toolset has no tools: mark methods with @vfx.tool"),
    ],
)
def test_what_can_be_no_tool_server_is_refused(toolsets: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        named_toolsets("T", toolsets)


def _variadic(self: object, *texts: str) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "method", "told"),
    [
        ("find", eval("lambda self, text: None"), "the parameter text has no type"),  # noqa: S307
        ("find", _variadic, "a tool is called with named arguments"),
        ("start", eval("lambda self: None"), "no tool can have this name"),  # noqa: S307
        ("model_dump", eval("lambda self: None"), "no tool can have this name"),  # noqa: S307
    ],
)
def test_a_method_that_can_be_no_tool_is_refused_when_the_class_is_made(
    name: str, method: Callable[..., Any], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        type("Bad", (vfx.Toolset,), {name: vfx.tool(method), "__module__": __name__})


@pytest.mark.parametrize("name", ["start", "state", "first"])
def test_a_field_can_have_the_name_of_no_hook_and_no_tool(name: str) -> None:
    with pytest.raises(TypeError, match=f"a field can't be named {name}"):
        type("Bad", (WebSearch,), {"__annotations__": {name: int}, name: 1, "__module__": __name__})


class Ask(vfx.Task):
    toolsets = (WebSearch,)


class Asks(vfx.Taskset[Ask]):
    toolsets: ClassVar[Toolsets] = {"archive": WebSearch}


def test_a_taskset_has_the_options_of_its_own_and_its_tasks_tool_servers() -> None:
    taskset = Asks.model_validate({"tools": {"archive": {"size": 5}}, "task": {"tools": {"web_search": {"size": 7}}}})
    assert [entry.model_dump()["size"] for entry in taskset.tools.servers.values()] == [5]
    assert [entry.model_dump()["size"] for entry in taskset.task.tools.servers.values()] == [7]
    assert list(Asks().tools.servers) == ["archive"]


def test_a_subclass_declares_its_own_tool_servers_or_none() -> None:
    class Fewer(Asks):
        toolsets: ClassVar[Toolsets] = {}

    class Same(Asks):
        pass

    assert list(Fewer().tools.servers) == []
    assert list(Same().tools.servers) == ["archive"]
    assert list(Fewer().task.tools.servers) == ["web_search"]


def test_a_shared_server_and_one_of_a_rollout_can_not_have_one_name() -> None:
    with pytest.raises(TypeError, match="are both named web_search"):
        type("Bad", (Asks,), {"toolsets": {"web_search": WebSearch}, "__module__": __name__})
