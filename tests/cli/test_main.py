import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def vfx(*argv: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "vfx", *argv, cwd=cwd, **variables)


def python(*argv: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VFX_")} | variables
    return subprocess.run(
        [sys.executable, *argv], cwd=cwd, env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_version(tmp_path: Path) -> None:
    assert vfx("--version", cwd=tmp_path).stdout == "vfx 0.1.0\n"


def test_help_lists_the_commands_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = """
        import sys
        from vfx.cli.main import main
        try:
            main(["--help"])
        finally:
            heavy = {"pydantic", "aiohttp", "anyio", "rich", "uvicorn"} & set(sys.modules)
            print("heavy:", sorted(heavy))
    """
    ended = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert ended.returncode == 0
    assert "heavy: []" in ended.stdout
    assert "eval" in ended.stdout
    assert "model" in ended.stdout


def test_a_dry_run_loads_no_library_that_only_a_run_needs(tmp_path: Path) -> None:
    code = """
        import sys
        from vfx.cli.main import main
        try:
            main(["eval", "--dry-run"])
        finally:
            print("heavy:", sorted({"aiohttp", "rich", "uvicorn", "uvloop"} & set(sys.modules)))
    """
    assert "heavy: []" in python("-c", textwrap.dedent(code), cwd=tmp_path).stdout


@pytest.mark.parametrize(("typed", "meant"), [("evel", "eval"), ("modle", "model")])
def test_a_misspelt_command(tmp_path: Path, typed: str, meant: str) -> None:
    ended = vfx(typed, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"vfx: 1 mistake:\n  there is no command '{typed}' (did you mean {meant}?)\n"


def test_an_unknown_option_before_the_command(tmp_path: Path) -> None:
    ended = vfx("--verbose", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "vfx", "eval", "--dry-run"]
    ended = subprocess.run(argv, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(writer)
    assert ended.stderr == b""


def test_secrets_are_kept_out_of_the_trace_of_a_bug(tmp_path: Path) -> None:
    code = """
        import vfx.cli.main as main
        from vfx.redaction import conceal
        from vfx.cli import app
        conceal("hidden-value")
        def fail(*_args, **_options):
            raise RuntimeError("hidden-value")
        app.app = fail
        main.main([])
    """
    ended = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert ended.returncode == 1
    assert "RuntimeError: ***" in ended.stderr


def test_a_thread_that_never_ends_does_not_hold_the_exit(tmp_path: Path) -> None:
    code = """
        import threading
        from vfx.cli.main import main
        threading.Thread(target=threading.Event().wait).start()
        main(["--version"])
    """
    ended = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "vfx 0.1.0\n")


def test_a_stream_that_cannot_show_a_character_is_no_failure(tmp_path: Path) -> None:
    ended = vfx("eval", "--name", "é", "--dry-run", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_completion_answers(tmp_path: Path) -> None:
    words = {"_VFX_COMPLETE": "complete_bash", "COMP_WORDS": "vfx e", "COMP_CWORD": "1"}
    assert vfx(cwd=tmp_path, **words).stdout.split() == ["eval"]
