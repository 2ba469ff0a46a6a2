import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.runner.estimates import Estimate, clustered_error, mean, pass_at_k, pass_counts


def test_pass_at_k_of_one_task() -> None:
    values = [1.0, 0.0, 0.0, 0.0]
    assert [pass_at_k([values], k) for k in (1, 2, 4)] == [pytest.approx(0.25), pytest.approx(0.5), 1.0]


def test_pass_at_1_is_the_mean() -> None:
    clusters = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert pass_at_k(clusters, 1) == pytest.approx(mean([value for cluster in clusters for value in cluster]))


def test_tasks_with_too_few_rollouts_say_nothing() -> None:
    assert pass_at_k([[1.0, 0.0], [0.0]], 2) == 1.0
    assert pass_at_k([[1.0], [0.0]], 2) is None
    assert pass_at_k([], 1) is None


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_rewards_between_success_and_failure_have_no_pass_at_k(value: float) -> None:
    assert pass_at_k([[1.0, value], [0.0, 1.0]], 1) is None


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=8), st.integers(1, 8))
def test_pass_at_k_is_the_share_of_choices_with_a_success(values: list[float], k: int) -> None:
    from itertools import combinations

    chosen = [float(any(choice)) for choice in combinations(values, k)]
    expected = mean(chosen)
    assert pass_at_k([values], k) == (None if expected is None else pytest.approx(expected))


def test_k_goes_in_powers_of_two_up_to_the_rollouts_of_a_task() -> None:
    assert [pass_counts(number) for number in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2], [1, 2, 4, 8]]


def test_errors_of_clusters_do_not_depend_on_the_order() -> None:
    clusters = [[0.1, 0.7], [0.3], [1e6, 1e-6]]
    assert clustered_error(clusters) == clustered_error(clusters[::-1])
    assert Estimate.of(clusters).mean == Estimate.of(clusters[::-1]).mean
    assert math.isfinite(clustered_error(clusters) or math.nan)
