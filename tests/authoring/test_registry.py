import re
from pathlib import Path

import pytest

from vfx.authoring.registry import HARNESSES, TASKSETS, harness_class, taskset_class
from vfx.errors import ConfigError

ENVIRONMENT = """
import vfx

class One(vfx.Taskset):
    def load(self):
        yield vfx.Task(prompt="x")
"""


def test_everything_that_ships_can_be_named() -> None:
    assert [taskset_class(name).__name__ for name in TASKSETS] == ["Arithmetic", "ReverseText"]
    assert [harness_class(name).__name__ for name in HARNESSES] == ["Chat"]


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "my_env.py"
    path.write_text(ENVIRONMENT)
    assert [task.prompt for task in taskset_class(str(path))().load()] == ["x"]


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_my_env.py").write_text("WORD = 'y'")
    path = tmp_path / "my_env.py"
    path.write_text("from neighbour_of_my_env import WORD\n" + ENVIRONMENT)
    assert taskset_class(str(path)).__name__ == "One"


def test_a_class_is_found_in_a_module() -> None:
    assert taskset_class("vfx.tasksets.arithmetic:Arithmetic").__name__ == "Arithmetic"


def test_one_of_several_classes_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(ENVIRONMENT + ENVIRONMENT.replace("One", "Two").replace("import vfx", ""))
    with pytest.raises(ConfigError, match="several Taskset classes"):
        taskset_class(str(path))
    assert taskset_class(f"{path}:Two").__name__ == "Two"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("arithmetik", "did you mean arithmetic?"),
        ("nothing-alike", "known: arithmetic, reverse-text"),
        ("./no_such.py", "there is no file './no_such.py'"),
        ("no.such.module:Class", "ModuleNotFoundError"),
        ("vfx.tasksets.arithmetic:Arithmetik", "did you mean Arithmetic?"),
        ("vfx.errors:VfxError", "has no Taskset class VfxError"),
    ],
)
def test_what_is_not_there_is_a_clear_mistake(reference: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        taskset_class(reference)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = (", "SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero (line 2 of bad.py)"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library' (line 1 of bad.py)"),
        ("x = 1", "defines no subclass of vfx.Taskset"),
    ],
)
def test_a_file_that_does_not_work_is_a_mistake_with_its_line(tmp_path: Path, code: str, expected: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    with pytest.raises(ConfigError, match=re.escape(expected)):
        taskset_class(str(path))
