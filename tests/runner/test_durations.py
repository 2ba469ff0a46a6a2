import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.runner.durations import LONGEST_S, RELATIVE_ERROR, SHORTEST_S, Durations


def of(*seconds: float) -> Durations:
    durations = Durations()
    for value in seconds:
        durations.add(value)
    return durations


@given(
    st.lists(st.floats(SHORTEST_S, LONGEST_S), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0])
)
def test_percentiles_are_within_the_documented_error(values: list[float], share: float) -> None:
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert of(*values).percentile(share) == pytest.approx(true, rel=RELATIVE_ERROR + 1e-9)


def test_memory_does_not_follow_the_number_of_durations() -> None:
    dice = random.Random(0)
    durations = of(*(10 ** dice.uniform(-9, 9) for _ in range(20_000)))
    assert durations.count == 20_000
    assert len(durations.buckets) <= 590


def test_the_sum_does_not_depend_on_the_order() -> None:
    values = [0.1, 1e5, 3e-5, 0.7, 12.345678]
    assert of(*values).to_record() == of(*values[::-1]).to_record()


def test_nothing_has_no_percentile() -> None:
    assert of().to_record() == {
        "count": 0,
        "total": 0.0,
        "mean": None,
        "p50": None,
        "p90": None,
        "p99": None,
        "max": None,
    }


def test_a_clock_that_was_set_back_counts_as_nothing() -> None:
    assert of(-3.0).to_record()["max"] == 0.0


def test_one_duration_is_told_exactly() -> None:
    record = of(0.5).to_record()
    assert (record["p50"], record["p99"], record["mean"], record["max"]) == (0.5, 0.5, 0.5, 0.5)
