import logging
from pathlib import Path

import pytest

from vfx.errors import RunError
from vfx.runner.run_log import RunLog


def write(log: RunLog, text: str) -> None:
    log.handle(logging.LogRecord("vfx", logging.INFO, __file__, 1, text, None, None))


def test_lines_are_appended(tmp_path: Path) -> None:
    for text in ("first", "half \ud835"):
        log = RunLog(tmp_path / "run.log")
        write(log, text)
        log.close()
    assert (tmp_path / "run.log").read_text() == "first\nhalf \\ud835\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog(Path("/dev/full"))
    write(log, "lost")
    log.close()
    assert capsys.readouterr() == ("", "")


def test_a_log_that_can_not_be_opened_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="can't be opened"):
        RunLog(tmp_path / "missing" / "run.log")
