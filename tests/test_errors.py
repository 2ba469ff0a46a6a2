import sys

import pytest

from vfx import errors
from vfx.errors import (
    ConfigError,
    HarnessError,
    Mistake,
    ProviderError,
    RolloutError,
    TaskError,
    attributed,
    root_cause,
)


def test_foreign_error_gets_the_owner_of_the_boundary() -> None:
    with pytest.raises(TaskError, match="setup: ValueError: no such file") as caught, attributed(TaskError, "setup"):
        raise ValueError("no such file")
    assert isinstance(caught.value.__cause__, ValueError)


def test_owned_error_passes_unchanged() -> None:
    error = ProviderError("gone", status=503)
    with pytest.raises(ProviderError) as caught, attributed(TaskError, "setup"):
        raise error
    assert caught.value is error


def test_cause_is_found_inside_groups_of_one() -> None:
    error = HarnessError("crashed")
    with pytest.raises(HarnessError) as caught, attributed(TaskError, "setup"):
        raise ExceptionGroup("unhandled", [ExceptionGroup("unhandled", [error])])
    assert caught.value is error


def test_groups_of_several_stay_whole() -> None:
    group = ExceptionGroup("two", [ValueError(), KeyError()])
    assert root_cause(group) is group


def test_base_exceptions_are_nobodys_fault() -> None:
    with pytest.raises(KeyboardInterrupt), attributed(TaskError, "setup"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(("code", "shown"), [(None, ""), (0, "0"), ("no data", "'no data'")])
def test_code_that_calls_exit_has_failed_and_does_not_end_the_run(code: int | str | None, shown: str) -> None:
    with pytest.raises(TaskError) as caught, attributed(TaskError, "setup"):
        sys.exit(code)
    assert str(caught.value) == f"setup: it calls sys.exit({shown})"


def test_every_rollout_error_names_its_kind() -> None:
    found = [
        error.kind for error in vars(errors).values() if isinstance(error, type) and issubclass(error, RolloutError)
    ]
    assert len(found) == len(set(found))


def test_config_error_shows_all_mistakes() -> None:
    error = ConfigError(Mistake("expected a number", "--n", "such as 3"), "and this")
    assert str(error) == "--n: expected a number (such as 3)\nand this"
