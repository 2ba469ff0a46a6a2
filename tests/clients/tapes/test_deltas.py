import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.clients.tapes.deltas import Beginnings, Delta, common_start, delta

TEXTS = st.text(alphabet=st.sampled_from("ab\u00e9\U0001f30d\n"), max_size=40)


@given(TEXTS, TEXTS)
def test_a_text_comes_back_from_its_difference(base: str, text: str) -> None:
    difference = delta(base, text)
    assert difference.apply(base) == text
    assert difference.start + difference.end <= min(len(base), len(text))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_two_texts_share_at_their_ends_is_left_out(start: str, end: str, old: str, new: str) -> None:
    difference = delta(f"{start}{old}{end}", f"{start}{new}{end}")
    assert len(difference.middle) <= len(new)


@given(TEXTS, TEXTS)
def test_the_common_start_is_the_longest(left: str, right: str) -> None:
    length = common_start(left, right)
    assert left[:length] == right[:length]
    assert left[length : length + 1] != right[length : length + 1] or length == len(left) == len(right)


def test_a_base_that_is_too_short_is_told() -> None:
    for base in ("", "abc"):
        with pytest.raises(ValueError, match="shorter than what was left out"):
            Delta(3, 1, "x").apply(base)


def test_the_text_that_begins_most_alike_is_found() -> None:
    beginnings = Beginnings()
    common = "".join(map(str, range(4000)))
    beginnings.add(1, "x", common[:200] + "one" * 3000)
    beginnings.add(2, "x", common[:9000] + "two" * 3000)
    beginnings.add(3, "x", "three" * 3000)
    assert beginnings.nearest("x", common) == 2
    assert beginnings.nearest("x", common[:300] + "four" * 300) in (1, 2)
    assert beginnings.nearest("y", common) is None
    assert beginnings.nearest("x", "five" * 300) is None


def test_of_texts_that_begin_alike_the_latest_is_found() -> None:
    beginnings = Beginnings()
    for number in range(5):
        beginnings.add(number, "x", "same " * 1000 + str(number))
    assert beginnings.nearest("x", "same " * 1000) == 4
