import pytest

from vfx.cli.command import REPLAY, VALIDATE
from vfx.cli.resolve import named_folder, resolve
from vfx.errors import ConfigError


def test_what_only_an_eval_has_is_refused_with_all_else_that_is_wrong() -> None:
    with pytest.raises(ConfigError) as error:
        resolve(["arithmetic", "--max-turns", "3", "--dry-run", "--taskset.siz", "3"], {}, VALIDATE)
    said = {(mistake.where, mistake.what) for mistake in error.value.mistakes}
    assert ("--max-turns", "is no option of vfx validate") in said
    assert ("--dry-run", "is no option of vfx validate") in said
    assert any(where == "--taskset.siz" and "unknown option" in what for where, what in said)


def test_a_command_without_a_model_asks_for_none() -> None:
    assert resolve(["reverse-text", "-n", "3"], {}, VALIDATE).config.num_tasks == 3


def test_booleans_of_its_own_may_be_negated() -> None:
    assert resolve(["reverse-text", "--no-shuffle"], {"VFX_SHUFFLE": "true"}, VALIDATE).config.shuffle is False


def test_the_folder_of_a_run_is_found_among_options() -> None:
    assert named_folder(["--name", "x", "outputs/run", "--json"], REPLAY) == "outputs/run"
    assert named_folder(["--json"], REPLAY) is None
