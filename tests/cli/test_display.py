"""Progress on a real terminal and elsewhere (field fault B21): what is shown, and how the terminal is left."""

import os
import re
import signal
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import anyio
import pytest

from tests.support.command import Done, environment, read_lines, run_dir, vfx
from tests.support.terminals import on_terminal
from vfx.cli.display import choose_display

pytestmark = pytest.mark.anyio

RUN = ("eval", "arithmetic", "--client.type", "scripted", "--client.latency", "0.3", "-c", "10")
ARGV = [sys.executable, "-m", "vfx", *RUN]
ALTERNATE_SCREEN = b"\x1b[?1049h"


def terminal_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in environment(extra).items() if name not in ("CI", "NO_COLOR")}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(extra or {})}


def is_plain(output: bytes) -> bool:
    """No escape byte, and no carriage return but those that a terminal itself puts before a line feed."""
    return b"\x1b" not in output and b"\r" not in output.replace(b"\r\n", b"\n")


def check_progress(text: str) -> None:
    assert "vfx: 20/20 done" in text
    for part in ("0 running", "0 errored", "reward ", " tokens", " s"):
        assert part in text


async def shell(command: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    script = command.replace("VFX", f"{sys.executable} -m vfx")
    done = await anyio.run_process(["bash", "-c", script], cwd=cwd, env=environment(env), check=False)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


async def test_live_view_shows_the_run_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with on_terminal(ARGV, cwd=tmp_path, env=terminal_environment()) as session:
        await session.until("running")
        await session.until("reward")
        assert session.settings() != session.before
        assert await session.end() == 0
        assert session.settings() == session.before
    assert session.is_cursor_visible
    assert ALTERNATE_SCREEN not in session.output
    assert b"exit        0: finished" in session.output


@pytest.mark.parametrize("how", ["signal", "key", "twice", "terminate"])
async def test_a_signal_during_the_live_view_leaves_the_terminal_as_it_was(tmp_path: Path, how: str) -> None:
    slow = [*ARGV, "--client.latency", "30"]
    with on_terminal(slow, cwd=tmp_path, env=terminal_environment()) as session:
        await session.until("10 agent")
        if how == "key":
            session.type(b"\x03")
        else:
            os.kill(session.process.pid, signal.SIGTERM if how == "terminate" else signal.SIGINT)
        if how == "twice":
            os.kill(session.process.pid, signal.SIGINT)
        assert await session.end() == (143 if how == "terminate" else 130)
        assert session.settings() == session.before
    assert session.is_cursor_visible
    assert b"stopping 10 running rollouts" in session.output
    assert b"Traceback" not in session.output


CRASH = """
import vfx

class Env(vfx.Taskset):
    def load(self):
        yield vfx.Task(prompt="x")

class Bug(BaseException):
    pass

class Broken(vfx.Harness):
    async def run(self, job):
        raise Bug("a bug of ours")
"""


async def test_a_crash_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(CRASH)
    argv = [sys.executable, "-m", "vfx", "eval", "./env.py", "--harness.id", "./env.py", "--client.type", "scripted"]
    with on_terminal(argv, cwd=tmp_path, env=terminal_environment()) as session:
        assert await session.end() != 0
        assert session.settings() == session.before
    assert session.is_cursor_visible
    assert b"a bug of ours" in session.output


async def test_keys_turn_pages_and_quit_nothing(tmp_path: Path) -> None:
    argv = [*ARGV, "--client.latency", "2", "-c", "20"]
    with on_terminal(argv, cwd=tmp_path, env=terminal_environment(), rows=22) as session:
        await session.until("page 1 of")
        session.type(b"q")
        session.type(b"n")
        await session.until("page 2 of")
        turned = len(session.output)
        session.type(b"\x1b[D")
        await session.until("page 1 of", after=turned)
        assert await session.end() == 0
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) == 20


async def test_stopped_and_continued_the_terminal_is_given_back_and_taken_again(tmp_path: Path) -> None:
    # Only a shell with job control can have a job stopped; it goes on with its next command then.
    command = " ".join([*ARGV, "--client.latency", "1.5", "-c", "20"])
    script = f"set -m; {command}; echo given back; sleep 0.3; fg"
    with on_terminal(["bash", "-c", script], cwd=tmp_path, env=terminal_environment()) as session:
        await session.until("20 agent")
        session.type(b"\x1a")
        await session.until("given back")
        assert session.settings() == session.before
        assert session.is_cursor_visible
        stopped = len(session.output)
        await session.until("running", after=stopped)
        assert session.settings() != session.before
        assert await session.end() == 0
        assert session.settings() == session.before
    assert session.is_cursor_visible


async def test_what_hooks_print_stays_above_the_picture(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(
        "import sys, vfx\n"
        "class Loud(vfx.Task):\n"
        "    def setup(self):\n"
        "        print('out of', self.prompt)\n"
        "        print('err of', self.prompt, end='', file=sys.stderr)\n"
        "        sys.stdout.buffer.flush()\n"
        "class Env(vfx.Taskset):\n"
        "    def load(self):\n"
        "        yield Loud(prompt='one')\n"
    )
    argv = [sys.executable, "-m", "vfx", "eval", "./env.py", "--client.type", "scripted", "--client.latency", "0.4"]
    with on_terminal(argv, cwd=tmp_path, env=terminal_environment()) as session:
        assert await session.end() == 0
    for line in (b"out of one", b"err of one"):
        assert line in re.split(rb"[\r\n]+", re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", session.output))


async def test_the_picture_follows_the_size_of_the_terminal(tmp_path: Path) -> None:
    argv = [*ARGV, "--client.latency", "3", "-n", "10"]
    with on_terminal(argv, cwd=tmp_path, env=terminal_environment(), columns=130) as session:
        await session.until("last answer")
        session.resize(70, 18)
        assert await session.end() == 0
    heads = session.output.rfind(b"last activity")
    assert b"last answer" not in session.output[heads:]


async def test_in_the_background_it_leaves_the_terminal_to_others(tmp_path: Path) -> None:
    command = " ".join([*ARGV, "--client.latency", "2", "-c", "20"])
    script = f"set -m; {command}; bg; echo given back; read word; echo got $word; fg"
    with on_terminal(["bash", "-c", script], cwd=tmp_path, env=terminal_environment()) as session:
        await session.until("20 agent")
        session.type(b"\x1a")
        await session.until("given back")
        given = len(session.output)
        session.type(b"n\n")
        await session.until("got n")
        assert b"scored" not in session.output[given : session.output.index(b"got n")]
        await session.until("rollouts ", after=session.output.index(b"got n"))
        assert await session.end() == 0
        assert session.settings() == session.before
    assert session.is_cursor_visible


async def test_output_that_is_held_up_holds_up_no_rollout(tmp_path: Path) -> None:
    with on_terminal([*ARGV, "-c", "5"], cwd=tmp_path, env=terminal_environment()) as session:
        await session.until("5 agent")
        session.type(b"\x13")
        with anyio.fail_after(10):
            while (run_dir(tmp_path) / "traces.jsonl").read_bytes().count(b"\n") < 20:
                await anyio.sleep(0.05)
        session.type(b"\x11")
        assert await session.end() == 0
        assert session.settings() == session.before
    assert session.is_cursor_visible


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "1"}, {"TERM": ""}])
async def test_terminals_that_can_not_redraw_get_plain_lines(tmp_path: Path, env: dict[str, str]) -> None:
    with on_terminal(ARGV, cwd=tmp_path, env=terminal_environment(env)) as session:
        assert await session.end() == 0
        assert session.settings() == session.before
    assert is_plain(session.output)
    check_progress(session.output.decode())


async def test_in_the_background_of_a_terminal_lines_are_plain(tmp_path: Path) -> None:
    script = f"set -m; {' '.join(ARGV)} & wait"
    with on_terminal(["bash", "-c", script], cwd=tmp_path, env=terminal_environment()) as session:
        assert await session.end() == 0
    assert is_plain(session.output)
    check_progress(session.output.decode())


@pytest.mark.parametrize("command", ["VFX {} 2>&1 | cat", "CI=1 VFX {} 2>&1", "VFX {} --display live 2>&1 | cat"])
async def test_without_a_terminal_lines_are_plain(tmp_path: Path, command: str) -> None:
    done = await shell(command.format(" ".join(RUN)), tmp_path)
    assert is_plain(done.stdout.encode())
    check_progress(done.stdout)


async def test_a_closed_reader_ends_no_run(tmp_path: Path) -> None:
    done = await shell(f"VFX {' '.join(RUN)} 2>&1 | head -1", tmp_path)
    assert done.stdout.count("\n") == 1
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) == 20


async def test_ascii_streams_end_no_run(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(
        "import vfx\n"
        "class Env(vfx.Taskset):\n"
        "    def load(self):\n"
        "        yield vfx.Task(prompt='é', name='日本')\n"
        "class Broken(vfx.Harness):\n"
        "    async def run(self, job):\n"
        "        raise ValueError('日本 \\ud800')\n"
    )
    options = ("--harness.id", "./env.py", "--client.type", "scripted")
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = await vfx("eval", "./env.py", *options, cwd=tmp_path, env=env)
    assert (done.code, "nothing was scored" in done.stdout) == (1, True)
    assert "Traceback" not in done.stderr
    argv = [sys.executable, "-m", "vfx", "eval", "./env.py", *options]
    with on_terminal(argv, cwd=tmp_path, env=terminal_environment(env)) as session:
        assert await session.end() == 1
    assert session.output.replace(b"\x1b", b"").isascii()


async def test_json_is_alone_on_stdout_and_none_is_silent(tmp_path: Path) -> None:
    done = await vfx(*RUN, "--json", "--display", "none", cwd=tmp_path)
    assert done.json["scored"] == 20
    assert done.stderr == ""


class Screen(StringIO):
    """Not a terminal."""


@pytest.mark.parametrize("setting", ["auto", "live", "plain", "none"])
def test_only_a_terminal_can_be_live(setting: str) -> None:
    expected = "none" if setting == "none" else "plain"
    assert choose_display(setting, Screen(), {"TERM": "xterm"}) == expected


def test_what_is_asked_for_wins_over_ci_but_not_over_what_the_terminal_can() -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream:
        ci = {"TERM": "xterm", "CI": "true"}
        assert choose_display("auto", stream, ci) == "plain"
        assert choose_display("live", stream, ci) == "live"
        assert choose_display("auto", stream, {"TERM": "xterm", "CI": "false"}) == "live"
        assert choose_display("live", stream, {"TERM": "dumb"}) == "plain"
    os.close(ours)
