import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.interception import document
from vfx.interception.document import Document, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), VALUES)


@given(OBJECTS, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_it_reads_what_the_standard_parser_reads(body: dict[str, Any], indent: Any, is_ascii: bool) -> None:
    text = json.dumps(body, indent=indent, ensure_ascii=is_ascii)
    raw = text.encode("utf-8", "surrogatepass" if is_ascii else "ignore")
    assert parse(raw) == json.loads(raw)


@given(OBJECTS)
def test_large_texts_read_alike(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    previous, document.PIECEWISE_FROM = document.PIECEWISE_FROM, 0
    try:
        assert parse(raw) == body
    finally:
        document.PIECEWISE_FROM = previous


@given(st.binary(max_size=30) | st.text(alphabet='{}[]",:1 ae\\', max_size=12).map(str.encode), st.booleans())
def test_it_refuses_what_the_standard_parser_refuses(raw: bytes, is_large: bool) -> None:
    previous, document.PIECEWISE_FROM = document.PIECEWISE_FROM, 0 if is_large else 1 << 20
    try:
        expected = json.loads(raw.decode())
        is_object = isinstance(expected, dict)
    except (ValueError, RecursionError):
        expected, is_object = None, False
    try:
        if is_object:
            assert parse(raw) == expected
        else:
            with pytest.raises(ValueError, match=r"."):
                parse(raw)
    finally:
        document.PIECEWISE_FROM = previous


@given(OBJECTS, st.dictionaries(st.text(max_size=3), VALUES), st.booleans())
def test_replaced_values_read_back(body: dict[str, Any], changes: dict[str, Any], is_ascii: bool) -> None:
    raw = json.dumps(body, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass" if is_ascii else "replace")
    read = Document(raw)
    wanted = read.body | changes
    assert list(json.loads(read.replaced(wanted)).items()) == list(wanted.items())


def test_only_the_replaced_value_changes() -> None:
    raw = '{ "a" : 1.0,\n "model":"x", "é": [1e400, 0.10] }'.encode()
    read = Document(raw)
    new = read.replaced({**read.body, "model": "\ud835", "top_k": 3})
    assert new == '{ "a" : 1.0,\n "model":"\\ud835", "é": [1e400, 0.10] ,"top_k":3}'.encode()
    assert math.isinf(read.body["é"][0])


def test_unchanged_is_the_same_bytes() -> None:
    raw = b'{"model": "m"}'
    read = Document(raw)
    assert read.replaced({**read.body, "model": "m"}) is raw


def test_every_occurrence_of_a_name_is_replaced() -> None:
    read = Document(b'{"model":"a","model":"b"}')
    assert read.replaced({"model": "c"}) == b'{"model":"c","model":"c"}'


def test_a_removed_name_is_gone() -> None:
    assert Document(b'{"a": 1, "b": 2}').replaced({"b": 2}) == b'{"b":2}'


def test_numbers_that_only_python_takes_for_equal_are_replaced() -> None:
    assert Document(b'{"temperature": true}').replaced({"temperature": 1.0}) == b'{"temperature": 1.0}'


def test_an_empty_object_takes_values() -> None:
    assert Document(b"{ }").replaced({"a": 1}) == b'{ "a":1}'


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "line 1 column 1"),
        (b"[]", "expected a JSON object, got list"),
        (b'{"a":1} x', "Extra data"),
        (b'{"a":1,}', "property name"),
        (b'{"a":1', "delimiter"),
        (b'{"a" 1}', "':' delimiter"),
        (b"\xff{}", "utf-8"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_told(raw: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Document(raw)
