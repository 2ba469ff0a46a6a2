from pathlib import Path

import pytest

from vfx.cli.help import GROUPS, docstrings, help_text
from vfx.cli.schema import Schema, dotted
from vfx.runner.config import EvalConfig
from vfx.tasksets.arithmetic import Arithmetic

SCREEN_LINES = 45
SCREEN_WIDTH = 100


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN_WIDTH))


def screen(*argv: str) -> str:
    return help_text(argv, {})[0]


def test_help_is_one_screen() -> None:
    lines = screen("--help").splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_WIDTH


def test_help_names_the_groups_of_options() -> None:
    text = screen("--help")
    for group in ("taskset", "harness", "interception", "client", "sampling", "timeout", "retries"):
        assert f"--{group}.*" in text
    assert "--help-all" in text


def test_every_option_that_is_in_no_group_is_on_the_screen() -> None:
    shown = {path for paths in GROUPS.values() for path in paths}
    schema = Schema(EvalConfig)
    assert {dotted(f.path) for f in schema.root.fields.values() if schema.group(f) is None} <= shown
    assert shown <= {dotted(field.path) for field in schema.walk()}


def test_help_says_what_the_docstring_of_a_field_says() -> None:
    assert "Rollouts of each task." in screen("--help")
    assert "Servers that may be starting at the same time." in screen("--help-all")


def test_help_all_lists_every_variant() -> None:
    text = screen("--help-all")
    for name in ("--client.base-url", "--client.slots", "--client.replies", "--interception.servers",
                 "--interception.multiplex", "--sampling.extra.KEY", "--harness.runtime.max-output-bytes"):  # fmt: skip
        assert name in text


def test_a_named_environment_adds_its_options() -> None:
    assert "--taskset.task-seed" in screen("reverse-text", "--help")
    assert "--taskset.task-seed" not in screen("--help")


def test_help_needs_no_valid_configuration() -> None:
    text, mistakes = help_text(["arithmetik", "-n", "0", "--help", "--foo"], {})
    assert "Usage" in text
    assert [mistake.where for mistake in mistakes] == ["ENV"]


def test_docstrings_of_base_classes_are_inherited() -> None:
    found = docstrings(Arithmetic)
    assert found["digits"] == "Digits of each number."
    assert found["system_prompt"].startswith("In place of")


def test_an_environment_in_a_file_has_its_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "documented.py"
    path.write_text('import vfx\n\nclass One(vfx.Taskset):\n    words: int = 3\n    """How many words."""\n')
    text = screen(str(path), "--help")
    assert "How many words." in text
    assert "Subclass it" not in text
