import resource

import pytest

from vfx.runner.descriptors import raise_limit, rollouts_within


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"),
    [(1024, 32, 32), (1024, 1000, 120), (20, 5, 1), (resource.RLIM_INFINITY, 5000, 5000), (65536, 1000, 1000)],
)
def test_rollouts_fit_the_limit(limit: int, wanted: int, expected: int) -> None:
    assert rollouts_within(limit, wanted) == expected


def test_the_soft_limit_is_raised_as_far_as_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert raise_limit() in (soft, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
