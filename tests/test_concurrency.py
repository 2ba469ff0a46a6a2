import os
import signal
import subprocess
import sys
import textwrap

import anyio
import pytest

from vfx._concurrency import FORCED_RELEASE_S, SWITCH_S, Shutdown, prompt_threads

pytestmark = pytest.mark.anyio

# What follows runs in a child: a signal handler belongs to a process, and pytest has its own.
PROGRAM = """
import os, signal, sys, threading, time
import anyio
from vfx._concurrency import grace, is_blocked_loop, shutdown_on_signals
from vfx._signals import inbox
inbox.install()

def later(seconds, signum=signal.SIGINT):
    threading.Timer(seconds, os.kill, (os.getpid(), signum)).start()

async def main():
    try:
        async with shutdown_on_signals() as shutdown:
            await body(shutdown)
    finally:
        print("code", shutdown.exit_code, "forced", shutdown.is_forced)

{body}
anyio.run(main, backend_options={{"use_uvloop": {uvloop}}})
"""


def run_program(body: str, *, uvloop: bool = True) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(body=textwrap.dedent(body), uvloop=uvloop)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("uvloop", [True, False])
def test_first_signal_cancels_and_cleanup_runs(uvloop: bool) -> None:
    done = run_program(
        """
        async def body(shutdown):
            later(0.1)
            try:
                await anyio.sleep(10)
            finally:
                with grace(5, "a thing"):
                    await anyio.sleep(0.1)
                    print("cleaned")
        """,
        uvloop=uvloop,
    )
    assert done.stdout == "cleaned\ncode 130 forced False\n"
    assert done.stderr == ""


def test_second_signal_ends_the_grace_but_not_the_teardown() -> None:
    done = run_program(
        """
        async def body(shutdown):
            later(0.1)
            later(0.3)
            try:
                await anyio.sleep(10)
            finally:
                with grace(60, "a thing"):
                    await anyio.sleep(60)
                with grace(60, "another"):
                    await anyio.sleep(60)
                print("still cleaned")
        """
    )
    assert done.stdout == "still cleaned\ncode 130 forced True\n"


def test_terminate_has_its_own_code() -> None:
    done = run_program(
        """
        async def body(shutdown):
            later(0.1, signal.SIGTERM)
            await anyio.sleep(10)
        """
    )
    assert done.stdout == "code 143 forced False\n"


def test_code_that_blocks_the_loop_is_broken_into() -> None:
    done = run_program(
        """
        async def body(shutdown):
            later(0.1)
            try:
                time.sleep(15)
            except BaseException as error:
                assert is_blocked_loop(error)
                print("broken into")
            await anyio.sleep(10)
        """
    )
    assert done.stdout == "broken into\ncode 130 forced False\n"


def test_signals_before_and_after_end_the_process_at_once() -> None:
    program = "from vfx._signals import inbox; inbox.install(); print('up', flush=True); import time; time.sleep(20)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    os.kill(child.pid, signal.SIGTERM)
    _, stderr = child.communicate(timeout=10)
    assert child.returncode == 143
    assert stderr == "vfx: SIGTERM: stopped; nothing was running\n"


async def test_release_of_what_is_not_local_keeps_two_seconds_after_a_second_signal() -> None:
    shutdown = Shutdown()
    shutdown.receive(signal.SIGINT)
    shutdown.receive(signal.SIGINT)
    with shutdown.grace(60, "a tunnel", is_release=True) as scope:
        assert scope.deadline - anyio.current_time() == pytest.approx(FORCED_RELEASE_S, abs=0.5)


async def test_what_is_waited_for_is_known_while_it_lasts() -> None:
    shutdown = Shutdown()
    with shutdown.grace(60, "4 programs to end"):
        assert list(shutdown.waiting_for.values()) == ["4 programs to end"]
    assert not shutdown.waiting_for


def test_threads_give_way_sooner_only_while_that_is_asked_for() -> None:
    before = sys.getswitchinterval()
    with prompt_threads():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == before
