import re
import sys
from pathlib import Path

import pytest

from vfx.authoring.harness import Harness
from vfx.authoring.registry import HARNESSES, TASKSETS, harness_class, known_harnesses, known_tasksets, taskset_class
from vfx.authoring.taskset import Taskset
from vfx.errors import ConfigError

ENVIRONMENT = """
import vfx

class One(vfx.Taskset):
    def load(self):
        yield vfx.Task(prompt="x")
"""


def test_everything_that_ships_can_be_named() -> None:
    assert all(issubclass(taskset_class(name), Taskset) for name in TASKSETS)
    assert all(issubclass(harness_class(name), Harness) for name in HARNESSES)
    assert taskset_class("reverse_text") is taskset_class("reverse-text")


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
        ("nothing-alike", "known: arithmetic, file, guess-number, reverse-text"),
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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package as a finder of distributions sees it; importing it says so."""
    (tmp_path / "words_of_others.py").write_text(ENVIRONMENT + "\nclass Two(One):\n    pass\n")
    info = tmp_path / "words_of_others-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: words-of-others\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[vfx.tasksets]\nother-words = words_of_others:Two\nfile = words_of_others:One\nbroken = words_of_others:No\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    sys.modules.pop("words_of_others", None)
    return "words_of_others"


def test_ids_of_installed_packages_are_listed_without_importing_them(package: str) -> None:
    known = known_tasksets()
    assert known["other-words"] == "words-of-others 1.2"
    assert known["file"] == known["arithmetic"] == "vfx"
    assert known_harnesses()["chat"] == "vfx"
    assert package not in sys.modules


def test_an_id_of_an_installed_package_is_found_unless_it_ships(package: str) -> None:
    assert taskset_class("other-words").__module__ == package
    assert taskset_class("other_words").__name__ == "Two"
    assert taskset_class("file").__module__ == "vfx.tasksets.file"


@pytest.mark.usefixtures("package")
def test_what_an_installed_package_registers_wrongly_names_the_package() -> None:
    with pytest.raises(ConfigError, match=r"words_of_others:No \(of words-of-others 1.2\)"):
        taskset_class("broken")
    with pytest.raises(ConfigError, match=r"did you mean other-words\?"):
        taskset_class("other-word")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("class T(vfx.Task):\n    x = 3", "'x' has no type: write it as a field, such as `x: int = ...`"),
        ("class T(vfx.Taskset):\n    words = ('a',)", "'words' has no type"),
        ("class T(vfx.Harness):\n    version = '1'", "or as a constant of the class, `version: ClassVar[...] = ...`"),
        ("class T(vfx.Task):\n    prompt = 'x'", "'prompt' is a field of a base class and must keep a type"),
        ("class T(vfx.Task):\n    setup: str", "T: a field can't be named setup"),
        ("class T(vfx.Task):\n    hooks: str", "T: a field can't be named hooks"),
        ("class T(vfx.Taskset):\n    infinite: bool = True", "T: a field can't be named infinite"),
        ("class T(vfx.Taskset):\n    task: str = ''", "T: a field can't be named task"),
        ("class T(vfx.Harness):\n    run: str", "T: a field can't be named run"),
        ("class T(vfx.Task):\n    @vfx.reward(weight=float('nan'))\n    def r(self): pass", "weight must be a finite"),
        ("class T(vfx.Task):\n    @vfx.group_reward\n    def r(self, trace): pass", "may ask for: task, traces"),
        ("class T(vfx.Task):\n    @vfx.metric\n    def key(self): pass", "T.key: no metric can have this name"),
        ("class T(vfx.Task):\n    @vfx.stop\n    def setup(self): pass", "T.setup: no stop can have this name"),
        ("class T(vfx.Task):\n    @vfx.reward\n    def model_dump(self): pass", "T.model_dump: no reward can have"),
        ("from vfx.tasksets.file import FileTask as F\nclass T(F):\n    correct: int", "can't be named correct"),
        ("class T(vfx.Task):\n    def check(self, trace): pass", "may ask for: runtime, task"),
    ],
)
def test_a_mistake_in_a_class_says_what_to_do_and_where(tmp_path: Path, body: str, expected: str) -> None:
    path = tmp_path / "my_env.py"
    path.write_text(f"import vfx\n\n{body}\n")
    with pytest.raises(ConfigError) as caught:
        taskset_class(str(path))
    assert expected in str(caught.value)
    assert "line 3 of my_env.py" in str(caught.value) or "line 4 of my_env.py" in str(caught.value)
    assert "ydantic" not in str(caught.value)
