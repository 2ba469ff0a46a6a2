import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from vfx.cli.values import Kind, Misfit, check, decode, describe, kind_of, settled, unset


class Colour(Enum):
    RED = "red"


class Left(BaseModel):
    type: Literal["left"] = "left"
    size: int = 1


class Right(BaseModel):
    type: Literal["right"] = "right"


class Share(BaseModel):
    type: Literal["share"] = "share"
    share: float | None = 1.0
    note: str | None = None


@pytest.mark.parametrize(
    ("hint", "name", "is_optional"),
    [
        (str, "text", False),
        (str | None, "text", True),
        (int, "whole number", False),
        (float | None, "number", True),
        (int | float, "number", False),
        (bool, "boolean", False),
        (Path, "path", False),
        (Literal["a", "b"], "choice", False),
        (Colour, "choice", False),
        (tuple[str, ...], "list", False),
        (list[int] | None, "list", True),
        (Sequence[str], "list", False),
        (dict[str, str], "map", False),
        (Mapping[str, Any], "map", False),
        (Any, "open", True),
        (Left, "group", False),
        (Left | Right, "group", False),
        (Annotated[int, Field(ge=1)], "whole number", False),
        (Annotated[int | None, Field(ge=1)], "whole number", True),
        (tuple[int, str], "other", False),
        (int | str, "other", False),
        (dict[int, str], "other", False),
    ],
)
def test_a_type_hint_says_what_kind_of_value_is_taken(hint: Any, name: str, is_optional: bool) -> None:
    kind = kind_of(hint)
    assert (kind.name, kind.is_optional) == (name, is_optional)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "007", "007"),
        (str, "true", "true"),
        (str | None, "007", "007"),
        (str | None, "none", "none"),
        (int, "7", 7),
        (int, "-1", -1),
        (int, "1_000", 1000),
        (int | None, "none", None),
        (float, "1e-3", 0.001),
        (float, "2", 2),
        (float | None, "none", None),
        (bool, "true", True),
        (bool, "False", False),
        (Path, "none", "none"),
        (Path | None, "none", None),
        (Literal["a", 2], "2", 2),
        (Colour, "red", "red"),
        (list[str], "a,b", ["a,b"]),
        (list[str], '["a", "007"]', ["a", "007"]),
        (list[str], "[a-z]*", ["[a-z]*"]),
        (list[int], "5", [5]),
        (tuple[int, ...], "[1, 2]", [1, 2]),
        (tuple[str, ...], "[]", []),
        (tuple[str, ...] | None, "none", None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Any, "40", 40),
        (Any, "[1]", [1]),
        (Any, "null", None),
        (Any, "007", "007"),
        (Any, "NaN", "NaN"),
        (Any, "a b", "a b"),
        (int | str, "007", "007"),
        (tuple[int, str], '[1, "x"]', [1, "x"]),
        (list[Left], '[{"size": 2}]', [{"size": 2}]),
        (list[Left], '{"size": 2}', [{"size": 2}]),
    ],
)
def test_text_is_decoded_as_the_type_says(hint: Any, text: str, value: Any) -> None:
    decoded = decode(kind_of(hint), text)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("hint", "text", "expected"),
    [
        (int, "5.0", 'expected a whole number, found text "5.0"'),
        (int, "none", 'expected a whole number, found text "none"'),
        (int | None, "", 'expected a whole number or none, found text ""'),
        (int | Literal["auto"], "many", 'expected a whole number or auto, found text "many"'),
        (int | Literal["auto"], "Auto", 'expected a whole number or auto, found text "Auto"; did you mean auto?'),
        (float, "nan", 'expected a number, found text "nan"'),
        (bool, "1", 'expected true or false, found text "1"'),
        (Literal["http", "local"], "htpp", 'expected one of http, local, found text "htpp"; did you mean http?'),
        (list[int], "x", 'expected a whole number, found text "x"'),
        (list[str], "[1]", "[0]: expected text, found the whole number 1"),
        (dict[str, str], "x", 'expected a table, found text "x"'),
        (list[Left], "x", 'expected a list in JSON, found text "x"'),
        (list[Left], '[{"sise": 2}]', "[0].sise: unknown option; did you mean size?"),
    ],
)
def test_text_that_does_not_fit_is_refused(hint: Any, text: str, expected: str) -> None:
    with pytest.raises(Misfit) as caught:
        decode(kind_of(hint), text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, "5", [("", 'expected a whole number, found text "5"')]),
        (int, 5.0, [("", "expected a whole number, found the number 5.0")]),
        (int, True, [("", "expected a whole number, found true")]),
        (int | Literal["auto"], True, [("", "expected a whole number or auto, found true")]),
        (int | Literal["auto"], "auto", []),
        (int | Literal["auto"], 5, []),
        (float, 5, []),
        (float, float("nan"), [("", "expected a number, found the number nan")]),
        (str, 5, [("", "expected text, found the whole number 5")]),
        (bool, 1, [("", "expected true or false, found the whole number 1")]),
        (list[str], "a", [("", 'expected a list, found text "a"')]),
        (list[str], ["a", 1, 2.5], [("[1]", "expected text, found the whole number 1"),
                                    ("[2]", "expected text, found the number 2.5")]),
        (dict[str, str], {"X": []}, [(".X", "expected text, found a list")]),
        (list[Left | Right], [{"type": "left", "size": "x"}],
         [("[0].size", 'expected a whole number, found text "x"')]),
        (list[Left | Right], [{"type": "up"}], [("[0].type", "expected one of left, right")]),
        (float | None, "none", []),
        (Literal[1], True, [("", "expected one of 1, found true")]),
    ],
)  # fmt: skip
def test_values_from_toml_have_to_be_of_the_type(hint: Any, value: Any, expected: list[tuple[str, str]]) -> None:
    assert list(check(kind_of(hint), value)) == expected


def test_none_is_a_word_only_where_it_can_mean_nothing_else() -> None:
    assert unset(kind_of(float | None), "none")
    assert not unset(kind_of(str | None), "none")
    assert not unset(kind_of(float), "none")


def test_none_is_a_word_deep_inside_too() -> None:
    kind = kind_of(list[Left | Share])
    table = {"type": "share", "share": "none", "note": "none"}
    assert settled(kind, [table]) == [{"type": "share", "share": None, "note": "none"}]
    assert decode(kind, json.dumps([table])) == [{"type": "share", "share": None, "note": "none"}]
    assert settled(kind_of(dict[str, float | None]), {"a": "none", "b": 1.0}) == {"a": None, "b": 1.0}


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(Misfit, match="…") as caught:
        decode(Kind("whole number"), "x" * 500)
    assert len(str(caught.value)) < 120


def test_kinds_have_names_for_people() -> None:
    assert describe(kind_of(dict[str, str])) == "a table"
    assert describe(kind_of(float | None)) == "a number or none"
