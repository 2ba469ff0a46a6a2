"""The page is run as it is written: its files are made, and every command that needs no model ends well."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page import Page
from tests.support.command import run_dir, vfx

pytestmark = pytest.mark.anyio

PAGE = Page("give-your-agent-tools")


@pytest.mark.parametrize("line", [line for line in PAGE.lines if "scripted" in line])
async def test_a_command_of_the_page_ends_well(tmp_path: Path, line: str) -> None:
    PAGE.write_files(tmp_path)
    await PAGE.run(line, tmp_path)
    assert "error" not in (run_dir(tmp_path) / "run.log").read_text()


async def test_the_shop_of_the_page_sells(tmp_path: Path) -> None:
    PAGE.write_files(tmp_path)
    calls: list[dict[str, Any]] = [{"tool": "add", "arguments": {"item": "salt"}}, {"tool": "pay", "arguments": {}}]
    script = ("--client.type", "scripted", "--client.replies", json.dumps([json.dumps(call) for call in calls]))
    done = await vfx("eval", "shop.py", *script, "--fail-under", "1", cwd=tmp_path)
    assert done.code == 0, done.stdout + done.stderr
