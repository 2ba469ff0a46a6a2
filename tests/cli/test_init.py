"""What `vfx init` makes has to run as it is."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.command import environment, vfx

pytestmark = pytest.mark.anyio


async def test_the_package_runs_where_it_stands(tmp_path: Path) -> None:
    made = await vfx("init", "my-env", cwd=tmp_path)
    assert made.code == 0, made.stderr
    assert "cd my-env" in made.stdout
    project = tomllib.loads((tmp_path / "my-env/pyproject.toml").read_text())["project"]
    assert project["entry-points"]["vfx.tasksets"] == {"my-env": "my_env:MyEnv"}
    done = await vfx("eval", "./my-env", "--client.type", "scripted", "--json", cwd=tmp_path)
    assert done.json["scored"] == 5, done.stderr
    here = await vfx("eval", ".", "--client.type", "scripted", "--json", cwd=tmp_path / "my-env")
    assert here.json["run_dir"].startswith("outputs/my-env--scripted--chat/"), here.stderr


async def test_the_packages_own_tests_pass(tmp_path: Path) -> None:
    await vfx("init", "my-env", cwd=tmp_path)
    variables = environment({"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONWARNINGS": ""})
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my-env",
        env=variables,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


async def test_a_linter_has_nothing_to_say(tmp_path: Path) -> None:
    await vfx("init", "my-env", cwd=tmp_path)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--line-length",
            "88",
            "--select",
            "E,F,I,UP,B",
            "my-env",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


async def test_one_file_runs_as_well(tmp_path: Path) -> None:
    made = await vfx("init", "letters", "--single-file", cwd=tmp_path)
    assert (made.code, [path.name for path in tmp_path.iterdir()]) == (0, ["letters.py"])
    done = await vfx("eval", "./letters.py", "--client.type", "scripted", "--json", cwd=tmp_path)
    assert done.json["scored"] == 5, done.stderr


async def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    (tmp_path / "taken.py").write_text("keep")
    for argv in (("mine",), ("taken", "--single-file")):
        done = await vfx("init", *argv, cwd=tmp_path)
        assert done.code == 2
        assert "left as it is" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert (tmp_path / "taken.py").read_text() == "keep"


async def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (await vfx("init", "empty", cwd=tmp_path)).code == 0
    assert (tmp_path / "empty/src/empty/__init__.py").is_file()


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("My Env!", "my-env"), ("3d-maze", "d-maze"), ("json", "json-env"), ("class", "class-env"), ("vfx", "vfx-env"),
     ("über", "uber"), ("---", "my-env"), ("../up", "up")],
)  # fmt: skip
async def test_a_name_that_is_none_is_refused_with_one_that_is(tmp_path: Path, name: str, suggested: str) -> None:
    done = await vfx("init", "--", name, cwd=tmp_path)
    assert done.code == 2
    assert f"such as {suggested})" in done.stderr
    assert list(tmp_path.iterdir()) == []


async def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    done = await vfx("init", "my-env", cwd=Path("/proc"))
    assert done.code == 2
    assert "can't be written" in done.stderr
    assert "Traceback" not in done.stderr


async def test_its_answers_are_scored(tmp_path: Path) -> None:
    await vfx("init", "letters", "--single-file", cwd=tmp_path)
    replies = ("--client.replies", json.dumps(["It is 3."]), "--json")
    done = await vfx("eval", "./letters.py", "--client.type", "scripted", *replies, cwd=tmp_path)
    assert done.json["reward"]["mean"] == pytest.approx(0.2)
