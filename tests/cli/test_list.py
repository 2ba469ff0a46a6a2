import json
from pathlib import Path

import pytest

from tests.support.command import vfx
from vfx.authoring.registry import HARNESSES, TASKSETS

pytestmark = pytest.mark.anyio


@pytest.fixture
def other_package(tmp_path: Path) -> Path:
    """An installed package whose code must not be run."""
    site = tmp_path / "site"
    info = site / "other-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[vfx.tasksets]\nmaze = other_env:Maze\n[vfx.harnesses]\nwalker = other_env:Walker\n"
    )
    (site / "other_env.py").write_text("raise SystemExit('imported')\n")
    return site


async def test_everything_that_ships_is_listed_with_a_description(tmp_path: Path) -> None:
    done = await vfx("list", "--json", cwd=tmp_path)
    entries = {entry["id"]: entry for entry in done.json}
    assert entries.keys() == {*TASKSETS, *HARNESSES}
    assert all(entry["description"] and entry["origin"] == "vfx" for entry in entries.values())


async def test_what_others_installed_is_listed_and_not_imported(tmp_path: Path, other_package: Path) -> None:
    done = await vfx("list", cwd=tmp_path, env={"PYTHONPATH": str(other_package)})
    assert done.code == 0, done.stderr
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert ["maze", "from other 1.2"] in rows
    assert ["walker", "from other 1.2"] in rows


async def test_kinds_are_told_apart(tmp_path: Path, other_package: Path) -> None:
    done = await vfx("list", "--json", cwd=tmp_path, env={"PYTHONPATH": str(other_package)})
    kinds = {entry["id"]: entry["kind"] for entry in json.loads(done.stdout)}
    assert (kinds["maze"], kinds["walker"], kinds["chat"]) == ("taskset", "harness", "harness")
