from pathlib import Path

import pytest

from vfx.cli.command import EVAL, REPLAY, RERUN, VALIDATE, Command, command_of
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


@pytest.mark.parametrize(
    ("command", "flag", "hint"),
    [
        (REPLAY, "--harness.id=chat", "it is one of vfx replay --rerun"),
        (REPLAY, "--max-turns=3", "it is one of vfx eval"),
        (RERUN, "--model=m", "it is one of vfx eval"),
        (VALIDATE, "--rerun", "it is one of vfx replay"),
        (EVAL, "--rerun", "it is one of vfx replay"),
    ],
)
def test_who_has_an_option_is_told(command: Command, flag: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[taskset]\nid = "reverse-text"\n')
    place = [str(tmp_path)] if command.reads_run else ["reverse-text"]
    with pytest.raises(ConfigError) as error:
        resolve([*place, flag], {}, command)
    assert hint in {mistake.hint for mistake in error.value.mistakes}


def test_a_replay_that_runs_programs_has_more_options() -> None:
    assert command_of("replay", ["outputs/run"]) is REPLAY
    assert command_of("replay", ["outputs/run", "--rerun"]) is RERUN
    assert command_of("eval", ["--rerun"]) is EVAL
