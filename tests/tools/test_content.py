import base64
import dataclasses
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from vfx.tools.content import ResultError, to_parts


class Row(BaseModel):
    name: str


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        (math.inf, "Infinity"),
        ({"a": "\ud800"}, '{"a": "�"}'),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        ([], "[]"),
        (["a", "b"], '["a", "b"]'),
        ((1, 2), "[1, 2]"),
        (Row(name="n"), '{"name": "n"}'),
        ([Point(1)], '[{"x": 1}]'),
        (Path("a/b"), '"a/b"'),
        ({"type": "text", "name": "a record that has a type"}, '{"type": "text", "name": "a record that has a type"}'),
        ({"type": ["string", "null"], "text": "a schema"}, '{"type": ["string", "null"], "text": "a schema"}'),
        ({"a": math.nan, "b": [-math.inf]}, '{"a": "NaN", "b": ["-Infinity"]}'),
        ("\ud83d\ude00 \ud800", "😀 �"),
    ],
)
def test_a_result_is_told_as_text(value: Any, text: str) -> None:
    assert to_parts(value) == [{"type": "text", "text": text}]


def test_nothing_is_no_content() -> None:
    assert to_parts(None) == []


PIXEL = base64.b64encode(b"png").decode()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "data": b"png", "mimeType": "image/png"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ],
)
def test_an_image_is_told_as_one_in_each_of_its_forms(part: dict[str, Any]) -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert to_parts(part) == [image]
    assert to_parts(["seen:", part]) == [{"type": "text", "text": "seen:"}, image]


def test_an_image_elsewhere_is_a_link() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert to_parts(part) == [{"type": "resource_link", "uri": "https://example.org/a.png", "name": "image"}]


@pytest.mark.parametrize("value", [threading.Lock(), {"a": object()}, {"type": "image", "data": PIXEL}])
def test_what_can_not_be_told_is_an_error_of_the_tool(value: Any) -> None:
    with pytest.raises(ResultError):
        to_parts(value)


def test_bytes_of_an_image_may_be_an_array() -> None:
    [part] = to_parts({"type": "image", "data": bytearray(b"png"), "mimeType": "image/png"})
    assert part["data"] == PIXEL
