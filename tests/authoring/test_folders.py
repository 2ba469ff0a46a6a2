from pathlib import Path

import pytest

from vfx.authoring.folders import is_folder, target_in_folder
from vfx.errors import ConfigError

GROUP = "vfx.tasksets"


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test makes importable is not so for the next one."""
    import sys

    monkeypatch.setattr(sys, "path", [*sys.path])


def project(folder: Path, points: str, package: str = "src/mine") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(f'[project.entry-points."vfx.tasksets"]\n{points}')
    (folder / package).mkdir(parents=True)
    return str(folder)


def test_only_what_is_written_as_a_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [is_folder(name) for name in ("./mine", ".", "mine", "./other")] == [True, True, False, False]


def test_the_entry_point_is_taken_and_src_is_importable(tmp_path: Path) -> None:
    import sys

    assert target_in_folder(project(tmp_path, "a = 'mine:A'"), "", GROUP, "ENV") == ("mine", "A")
    assert sys.path[0] == str(tmp_path / "src")


def test_without_src_the_folder_is_importable(tmp_path: Path) -> None:
    import sys

    assert target_in_folder(project(tmp_path, "a = 'mine.env:A'", "mine"), "", GROUP, "ENV") == ("mine.env", "A")
    assert sys.path[0] == str(tmp_path)


def test_one_of_several_is_named_by_its_id_or_class(tmp_path: Path) -> None:
    folder = project(tmp_path, "a = 'mine:A'\nb = 'mine:B'")
    assert target_in_folder(folder, "b", GROUP, "ENV") == ("mine", "B")
    assert target_in_folder(folder, "A", GROUP, "ENV") == ("mine", "A")
    with pytest.raises(ConfigError, match="has several") as error:
        target_in_folder(folder, "", GROUP, "ENV")
    assert f"{folder}:a, {folder}:b" in str(error.value)
    with pytest.raises(ConfigError, match="it has: a, b"):
        target_in_folder(folder, "c", GROUP, "ENV")


def test_a_package_without_a_project(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    assert target_in_folder(str(tmp_path / "mine"), "A", GROUP, "ENV") == ("mine", "A")


def test_a_folder_without_either_names_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "env.py").touch()
    with pytest.raises(
        ConfigError, match=r"neither pyproject.toml nor __init__.py \(name a file in it, such as .*env.py"
    ):
        target_in_folder(str(tmp_path), "", GROUP, "ENV")


@pytest.mark.parametrize(
    ("text", "said"),
    [("[project", "can't be read"), ("[project]\nname = 'x'", "names no entry point of the group vfx.tasksets")],
)
def test_a_project_that_says_nothing(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        target_in_folder(str(tmp_path), "", GROUP, "ENV")
