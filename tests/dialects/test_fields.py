from typing import Any

import pytest

from vfx.dialects.fields import as_count, as_list, as_objects, as_text, error_words, join_pieces, require_list


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"message": "oops"}, "oops"),
        ({"message": "oops", "code": "x1"}, "oops (x1)"),
        ({"message": "x1: oops", "code": "x1"}, "x1: oops"),
        ({"message": "oops", "code": 5}, "oops"),
        ({"odd": 1}, "{'odd': 1}"),
        ("plain", "plain"),
        (None, "None"),
    ],
)
def test_an_error_is_told_by_its_message_and_code(error: Any, words: str) -> None:
    assert error_words(error) == words


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([], ""),
        (["a", "b"], "ab"),
        (["\ud83c", "\udf0d"], "\U0001f30d"),
        (["\ud83c", "a"], "\ud83ca"),
        (["a\ud83c", "", "\udf0db", "\ud800"], "a\U0001f30db\ud800"),
    ],
)
def test_pieces_are_joined_and_halves_of_a_character_meet(pieces: list[str], text: str) -> None:
    assert join_pieces(pieces) == text


def test_what_has_another_type_counts_as_missing() -> None:
    assert (as_text(""), as_text(5), as_text("a")) == (None, None, "a")
    assert (as_count(True), as_count(1.0), as_count(0)) == (None, None, 0)
    assert (as_list({}), as_objects([1, {"a": 1}, None])) == ([], [{"a": 1}])
    assert require_list(None, "x") == []
