"""The page is run as it is written: its files are made, and every command that needs no model ends well."""

from pathlib import Path

import pytest

from tests.docs.page import Page

pytestmark = pytest.mark.anyio

PAGE = Page("simulate-a-user")


@pytest.mark.parametrize("line", [line for line in PAGE.lines if "scripted" in line])
async def test_a_command_of_the_page_ends_well(tmp_path: Path, line: str) -> None:
    PAGE.write_files(tmp_path)
    await PAGE.run(line, tmp_path)
