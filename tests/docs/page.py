"""A page of the documentation, to be run as it is written."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.support.command import vfx

__all__ = ["Page"]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    """One file of `docs`."""

    def __init__(self, name: str) -> None:
        self._text = (Path(__file__).parents[2] / "docs" / f"{name}.md").read_text("utf-8")

    def blocks(self, language: str) -> list[str]:
        """The blocks of code in one language."""
        return [body for kind, body in _BLOCK.findall(self._text) if kind == language]

    @property
    def lines(self) -> list[str]:
        """The commands, those over several lines in one."""
        return [line for body in self.blocks("sh") for line in body.replace("\\\n", "").splitlines()]

    def write_files(self, folder: Path) -> None:
        """Make the files that it shows."""
        for body in [*self.blocks("python"), *self.blocks("toml")]:
            name = re.match(r"# (\w+\.(py|toml))\n", body)
            assert name, "each block begins with the name of its file"
            (folder / name[1]).write_text(body)
        for line in self.lines:
            if line.startswith("printf "):
                subprocess.run(line, shell=True, check=True, cwd=folder)  # noqa: S602 - our own page

    async def run(self, line: str, folder: Path) -> None:
        """Run a command that must end well."""
        program, *arguments = shlex.split(line, comments=True)
        assert program == "vfx"
        done = await vfx(*arguments, cwd=folder)
        assert done.code == 0, done.stderr
