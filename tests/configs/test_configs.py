from pathlib import Path

import pytest

from vfx.cli.resolve import resolve

FOLDER = Path(__file__).parents[2] / "configs"
FILES = sorted(FOLDER.glob("*.toml"))


def test_there_are_configurations_to_start_from() -> None:
    assert {path.stem for path in FILES} >= {"demo", "elastic", "hosted"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_resolves(path: Path) -> None:
    assert resolve(["@", str(path)], {}).config


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_header_says_how_to_run_it(path: Path) -> None:
    assert f"vfx eval @ configs/{path.name}" in path.read_text()
