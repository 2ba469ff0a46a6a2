from typing import Any

import pytest
from pydantic import ValidationError

import vfx
from vfx.authoring.tool_settings import AddedServer, tool_settings


class Search(vfx.Toolset):
    size: int = 3
    index: str

    @vfx.tool
    def find(self) -> None:
        """Finds."""


MODEL = tool_settings("Asks", {"search": Search})


def mistakes(data: dict[str, Any]) -> list[tuple[tuple[Any, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        MODEL.model_validate(data)
    return [(error["loc"], error["msg"]) for error in caught.value.errors()]


def test_a_declared_server_is_configured_and_another_is_added_by_its_url() -> None:
    settings = MODEL.model_validate({"search": {"index": "a"}, "more": {"url": "http://localhost:3/mcp"}})
    assert settings.servers == {"search": Search(index="a"), "more": AddedServer(url="http://localhost:3/mcp")}


def test_what_a_server_requires_is_missed_by_its_name() -> None:
    assert mistakes({}) == [(("search", "index"), "Field required")]


def test_an_unknown_server_without_a_url_is_taken_for_a_misspelt_one() -> None:
    [(_, told)] = mistakes({"serch": {"start_timeout": 3}})
    assert told.endswith("no tool server is called 'serch', and one that is added needs a url; did you mean search?")


def test_an_added_server_has_no_fields_of_a_toolset() -> None:
    found = mistakes({"search": {"index": "a"}, "more": {"url": "http://localhost", "size": 3}})
    assert found == [(("more", "size"), "Extra inputs are not permitted")]
