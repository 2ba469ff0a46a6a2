import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from vfx.tools.signatures import ArgumentError, Signature


class Place(BaseModel):
    street: str
    number: int = 1


class Tools:
    def find(
        self,
        query: str,
        copy: bool = False,  # noqa: FBT002
        *,
        kind: Literal["all", "new"] = "all",
        near: Place | None = None,
        depth: Annotated[int, Field(ge=1, description="How deep.")] = 1,
    ) -> str:
        """Find something.

        It takes a while.

        Args:
            query: What to look for,
                in any words.
            copy (bool): Whether to copy it: that is slower.
            depth: Not this one.

        Returns:
            What was found.
        """
        return f"{query} {copy} {kind} {near} {depth}"

    def plain(self) -> None:
        pass


def signature(function: Callable[..., Any]) -> Signature:
    return Signature(function.__name__, function)


FIND = signature(Tools.find)


def test_the_model_is_told_the_docstring_without_its_arguments() -> None:
    assert FIND.description == "Find something.\n\nIt takes a while.\n\nReturns:\n    What was found."
    assert signature(Tools.plain).description == ""


def test_the_schema_has_names_types_defaults_and_descriptions() -> None:
    properties = FIND.schema["properties"]
    assert properties["query"] == {"description": "What to look for, in any words.", "type": "string"}
    assert properties["copy"]["description"] == "Whether to copy it: that is slower."
    assert properties["kind"] == {"default": "all", "enum": ["all", "new"], "type": "string"}
    assert properties["depth"] == {"default": 1, "description": "How deep.", "minimum": 1, "type": "integer"}
    assert FIND.schema["required"] == ["query"]
    assert FIND.schema["additionalProperties"] is False
    assert "argument_" not in json.dumps(FIND.schema)


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert signature(Tools.plain).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_arguments_become_what_the_types_say_and_those_left_out_keep_their_defaults() -> None:
    assert FIND.bind({"query": "x"}) == {"query": "x"}
    bound = FIND.bind({"query": "x", "copy": True, "near": {"street": "Elm"}, "depth": "2"})
    assert bound == {"query": "x", "copy": True, "near": Place(street="Elm"), "depth": 2}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "query: is required"),
        (
            {"query": "x", "limit": 3},
            "limit: there is no such argument; there are: query, copy, kind, near, depth",
        ),
        ({"query": "x", "depth": 0}, "depth: expected greater than or equal to 1, got 0"),
        ({"query": "x", "kind": "old"}, "kind: expected 'all' or 'new', got 'old'"),
        ({"query": "x", "near": {"number": 1}}, "near.street: is required"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_what_would(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        FIND.bind(arguments)
    assert str(caught.value) == f"the arguments of find don't fit: {told}"


@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists)))
def test_whatever_a_model_writes_is_bound_or_told(arguments: dict[str, Any]) -> None:
    with suppress(ArgumentError):
        assert FIND.bind(arguments).keys() <= {"query", "copy", "kind", "near", "depth"}
