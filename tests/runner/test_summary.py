import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.traces import make_trace
from vfx.errors import ProviderError, ScoringError
from vfx.messages import Usage
from vfx.runner.summary import Estimate, Tally, clustered_error, mean
from vfx.trace.reading import read_trace
from vfx.trace.record import Span, Trace, encode_record


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


def varied_traces(number: int) -> list[Trace]:
    dice = random.Random(1)
    traces: list[Trace] = []
    for index in range(number):
        key, rollout = f"t{index // 4}", index % 4
        if dice.random() < 0.2:
            trace = make_trace(key, rollout=rollout, reply=None, error=ProviderError(f"HTTP 500 {index}"))
        else:
            usage = Usage(dice.randrange(100), dice.randrange(100))
            trace = make_trace(key, rollout=rollout, rewards={"r": float(dice.random() < 0.5)}, usage=usage)
            trace.metrics["length"] = dice.random()
            trace.calls[0].first_byte = dice.random()
        start = dice.random()
        trace.timing = {name: Span(start, start + dice.random()) for name in ("boot", "agent", "total")}
        traces.append(trace)
    return traces


def test_the_numbers_are_those_recomputed_from_the_records_in_any_order() -> None:
    first, second = Tally(planned=60, rollouts_per_task=4), Tally(planned=60, rollouts_per_task=4)
    traces = varied_traces(60)
    for trace in traces:
        first.add(trace)
    lines = [encode_record(trace.to_record()) for trace in traces]
    random.Random(2).shuffle(lines)
    for line in lines:
        second.add(read_trace(line))
    told, again = first.to_record(), second.to_record()
    for record in (told, again):
        # Examples are those of the first one; the names of rewards come in the order of arrival.
        del record["error_examples"], record["error_causes"]
    assert told == again


def test_every_number_is_json() -> None:
    tally = Tally(planned=3, rollouts_per_task=2)
    tally.add(make_trace(rewards={"r": 1.0}))
    json.dumps(tally.to_record(), allow_nan=False)
    json.dumps(Tally().to_record(), allow_nan=False)


def test_pass_at_k_is_told_for_rewards_that_are_zero_or_one() -> None:
    tally = Tally(planned=4, rollouts_per_task=2)
    for rollout, value in enumerate((1.0, 0.0)):
        tally.add(make_trace(rollout=rollout, rewards={"right": value, "style": 0.5}))
    record = tally.to_record()
    assert record["rewards"]["right"]["pass_at_k"] == {"1": 0.5, "2": 1.0}
    assert record["rewards"]["style"]["pass_at_k"] == {"1": None, "2": None}


def test_times_of_calls_rollouts_and_stages_are_told() -> None:
    trace = make_trace(rewards={"r": 1.0})
    trace.calls[0].first_byte = 0.25
    trace.timing = {"boot": Span(0.0, 0.5), "agent": Span(0.5, 2.5), "total": Span(0.0, 3.0), "scoring": Span(2.5)}
    tally = Tally(planned=1)
    tally.add(trace)
    record = tally.to_record()
    assert {name: latency["p50"] for name, latency in record["latency"].items()} == {
        "first_byte": 0.25,
        "call": 1.0,
        "rollout": 3.0,
    }
    assert {name: stage["total"] for name, stage in record["stages"].items()} == {"boot": 0.5, "agent": 2.0}
