import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.traces import make_trace
from vfx.errors import ProviderError, ScoringError
from vfx.messages import Usage
from vfx.runner.summary import Estimate, Tally, clustered_error, mean


def test_errored_rollouts_are_counted_and_both_means_are_given() -> None:
    tally = Tally(planned=10)
    for number in range(7):
        tally.add(make_trace(str(number), rewards={"r": float(number > 0)}))
    for number in range(2):
        tally.add(make_trace(f"p{number}", reply=None, error=ProviderError("gone")))
    tally.add(make_trace("s", rewards={"r": None}, error=ScoringError("slow")))
    record = tally.to_record()
    assert (record["planned"], record["scored"], record["errored"]) == (10, 7, 3)
    assert record["errors"] == {"provider": 2, "scoring": 1}
    assert record["reward"]["mean"] == pytest.approx(6 / 7)
    assert record["reward"]["mean_errored_as_zero"] == pytest.approx(0.6)


def test_nothing_scored_has_no_mean() -> None:
    tally = Tally(planned=1)
    tally.add(make_trace(reply=None, error=ProviderError("gone")))
    assert tally.reward == Estimate(None, None, None, 0)
    assert tally.mean_errored_as_zero is None


def test_unknown_usage_is_not_zero() -> None:
    tally = Tally(planned=1)
    tally.add(make_trace(usage=Usage(), rewards={"r": 1.0}))
    record = tally.to_record()
    assert record["usage"]["output_tokens"] is None
    assert record["usage"]["turns_without_usage"] == 1


def test_failed_calls_are_accounted_apart() -> None:
    trace = make_trace(rewards={"r": 1.0})
    trace.calls[0].error = make_trace(error=ProviderError("cut")).errors[0]
    tally = Tally(planned=1)
    tally.add(trace)
    assert (tally.calls, tally.failed_calls) == (0, 1)
    assert (tally.usage.output_tokens, tally.failed_usage.output_tokens) == (None, 1)


def test_error_with_one_value_a_task_is_the_usual_one() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    centre = sum(values) / 5
    usual = math.sqrt(sum((value - centre) ** 2 for value in values) / 4 / 5)
    assert clustered_error([[value] for value in values]) == pytest.approx(usual)


def test_rollouts_of_one_task_do_not_count_as_independent() -> None:
    assert clustered_error([[1.0] * 4, [0.0] * 4]) == pytest.approx(0.5)


def test_one_task_has_no_spread() -> None:
    assert clustered_error([[1.0, 0.0]]) is None
    assert mean([]) is None


@given(st.lists(st.lists(st.floats(-10, 10), max_size=4), max_size=8))
def test_interval_is_around_the_mean(clusters: list[list[float]]) -> None:
    estimate = Estimate.of(clusters)
    if estimate.interval is not None and estimate.mean is not None:
        low, high = estimate.interval
        assert low <= estimate.mean + 1e-9
        assert estimate.mean <= high + 1e-9
