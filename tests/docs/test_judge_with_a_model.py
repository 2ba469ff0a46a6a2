"""The page is run as it is written: its files are made, and the command that needs no model ends well."""

import tomllib
from pathlib import Path

import pytest

from tests.docs.page import Page
from vfx.cli.resolve import resolve

pytestmark = pytest.mark.anyio

PAGE = Page("judge-with-a-model")


@pytest.mark.parametrize("line", [line for line in PAGE.lines if "scripted" in line])
async def test_a_command_of_the_page_ends_well(tmp_path: Path, line: str) -> None:
    PAGE.write_files(tmp_path)
    await PAGE.run(line, tmp_path)


@pytest.mark.parametrize("name", ["judges.toml", "strict.toml"])
def test_a_file_of_the_page_resolves(tmp_path: Path, name: str) -> None:
    PAGE.write_files(tmp_path)
    resolved = resolve(["reverse-text", "@", str(tmp_path / name), "-m", "m"], {})
    written = tomllib.loads((tmp_path / name).read_text())["taskset"]["task"]["judges"]
    assert [judge.type for judge in resolved.config.taskset.task.judges] == [judge["type"] for judge in written]
