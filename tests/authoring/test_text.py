import pytest

from vfx.authoring.text import contains_word, numbers, similarity


def test_similarity_is_one_for_equal_and_zero_for_disjoint_texts() -> None:
    assert similarity("abc", "abc") == similarity("", "") == 1.0
    assert similarity("abc", "xyz") == 0.0


@pytest.mark.parametrize(("text", "word"), [("It is 7.", "7"), ("seven, SEVEN", "Seven"), ("= 7", "7")])
def test_word_is_found_on_its_own(text: str, word: str) -> None:
    assert contains_word(text, word)


@pytest.mark.parametrize(("text", "word"), [("17", "7"), ("7.5", "7"), ("7,000", "7"), ("sevenths", "seven")])
def test_word_is_not_found_inside_another(text: str, word: str) -> None:
    assert not contains_word(text, word)


def test_numbers_are_read_with_separators_and_signs() -> None:
    assert numbers("from -3 to 1,234.5, then 7.") == [-3.0, 1234.5, 7.0]
