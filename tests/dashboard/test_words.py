import pytest

from vfx.dashboard.words import count, duration, estimate, one_line, short_duration, tokens, wrapped
from vfx.messages import Usage
from vfx.runner.estimates import Estimate


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (99_949, "99.9k"), (99_950, "100k"), (999_499, "999k"), (999_500, "1.0M")],
)
def test_counts_stay_short(number: int, text: str) -> None:
    assert count(number) == text


def test_no_count_is_too_large() -> None:
    assert count(10**18) == "1000000T"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59.9, "59 s"), (185, "3m 05s"), (7800, "2h 10m"), (5 * 86400 + 3 * 3600, "5d 03h")],
)
def test_durations_name_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.004, "4 ms"), (0.9996, "1.00 s"), (9.996, "10.0 s"), (42.04, "42.0 s"), (59.96, "1m 00s")]
)
def test_short_durations_have_at_most_three_digits(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


def test_foreign_text_can_do_nothing_to_a_terminal() -> None:
    assert one_line("a\x1b[31m\r\n\tb\x07 \ud800 \x9b2J") == "a [31m b 2J"
    assert one_line("x" * 50, 10) == "xxxxxxx..."


def test_wrapped_lines_fit_in_columns() -> None:
    assert list(wrapped("日本 日本 ab cde", 9)) == ["日本 日本", "ab cde"]
    assert list(wrapped("a-very-long-word b", 4)) == ["a-very-long-word", "b"]


def test_estimates_show_what_can_be_told() -> None:
    assert estimate(Estimate(None, None, None, 0)) == "-"
    assert estimate(Estimate(0.5, None, None, 1)) == "0.500"
    assert estimate(Estimate(0.5, 0.1, (0.304, 0.696), 9)) == "0.500  (95 % 0.304 to 0.696)"


def test_tokens_that_nobody_told_are_no_zero() -> None:
    assert (tokens(Usage()), tokens(Usage(3, None))) == ("?", "3")
