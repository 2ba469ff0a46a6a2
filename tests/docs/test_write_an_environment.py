"""The page is run as it is written: its files are made, and every command that needs no model ends well."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.command import vfx

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "write-an-environment.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(PAGE.read_text("utf-8")) if kind == language]


def write_files(folder: Path) -> None:
    for body in [*blocks("python"), *blocks("toml")]:
        name = re.match(r"# (\w+\.(py|toml))\n", body)
        assert name, "each block begins with the name of its file"
        (folder / name[1]).write_text(body)


COMMANDS = [line for body in blocks("sh") for line in body.splitlines() if "scripted" in line]


@pytest.mark.parametrize("line", COMMANDS)
async def test_a_command_of_the_page_ends_well(tmp_path: Path, line: str) -> None:
    write_files(tmp_path)
    for other in (line for body in blocks("sh") for line in body.splitlines()):
        if other.startswith("printf "):
            subprocess.run(other, shell=True, check=True, cwd=tmp_path)  # noqa: S602 - our own page
    program, *arguments = shlex.split(line, comments=True)
    assert program == "vfx"
    done = await vfx(*arguments, cwd=tmp_path)
    assert done.code == 0, done.stderr
