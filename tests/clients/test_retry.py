from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.clients.retry import Pace, asked_wait, backoff, spread

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("Retry-After", "2", 2.0),
        ("retry-after", "1.5", 1.5),
        ("Retry-After", "0", 0.0),
        ("Retry-After", "-3", 0.0),
        ("Retry-After", "16000", 16000.0),
        ("Retry-After", "soon", None),
        ("Retry-After", "nan", None),
        ("Retry-After", "inf", None),
        ("Retry-After", "", None),
        ("retry-after-ms", "250", 0.25),
        ("x-other", "2", None),
    ],
)
def test_the_asked_wait_is_read(name: str, value: str, seconds: float | None) -> None:
    assert asked_wait([(name, value)], NOW) == seconds


def test_a_date_is_a_wait_from_now() -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + 7, UTC), usegmt=True)
    assert asked_wait([("Retry-After", date)], NOW) == 7.0


def test_a_date_in_the_past_is_no_wait() -> None:
    date = format_datetime(datetime.fromtimestamp(NOW - 7, UTC), usegmt=True)
    assert asked_wait([("Retry-After", date)], NOW) == 0.0


def test_milliseconds_are_preferred() -> None:
    assert asked_wait([("Retry-After", "2"), ("Retry-After-Ms", "1250")], NOW) == 1.25


@given(wait=st.floats(0, 3600), jitter=st.floats(0, 1, exclude_max=True))
def test_a_spread_wait_is_never_early_and_hardly_late(wait: float, jitter: float) -> None:
    assert wait <= spread(wait, jitter) <= wait * 1.2 + 0.5


def test_backoff_doubles_up_to_the_bound() -> None:
    assert [backoff(failures, 3.0, 0.0) for failures in (1, 2, 3, 4, 400)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_backoff_may_begin_elsewhere() -> None:
    assert [backoff(failures, 60.0, 0.0, first=0.25) for failures in (1, 2)] == [0.25, 0.5]


@given(failures=st.integers(1, 50), jitter=st.floats(0, 1))
def test_jitter_takes_at_most_a_quarter(failures: int, jitter: float) -> None:
    whole = backoff(failures, 60.0, 0.0)
    assert 0.75 * whole <= backoff(failures, 60.0, jitter) <= whole


def test_the_later_hold_counts() -> None:
    pace = Pace()
    pace.hold(NOW + 5, "first")
    pace.hold(NOW + 3, "second")
    assert (pace.wait(NOW), pace.wait(NOW + 6), pace.reason) == (5.0, 0.0, "first")
