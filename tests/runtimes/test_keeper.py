import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import is_alive
from vfx.runtimes import keeper
from vfx.runtimes.keeper import remove_folder


def test_folder_is_removed_with_what_was_made_unreadable(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (folder / "link").symlink_to(tmp_path / "outside")
    for path in (folder / "a" / "b", folder / "a", folder):
        path.chmod(0)
    remove_folder(str(folder))
    assert not folder.exists()
    assert (tmp_path / "outside" / "kept").exists()


def test_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_folder(str(tmp_path / "nowhere"))


def test_keeper_without_a_place_for_its_folder_says_so(tmp_path: Path) -> None:
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = [sys.executable, "-I", "-S", keeper.__file__, str(tmp_path / "nowhere")]
        subprocess.run(program, stdin=theirs.fileno(), timeout=10, check=True)
        assert b"No such file" in ours.recv(1000)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_and_cpu_time_are_those_of_the_processes() -> None:
    me = [os.getpid()]
    assert keeper.memory_held(me, 10**15) > 10_000_000
    assert 1_000_000 < keeper.memory_held(me, 1) <= keeper.memory_held(me, 10**15)
    assert keeper.cpu_used(me) > 0
    assert keeper.memory_held([2**22 + 1], 1) == keeper.cpu_used([2**22 + 1]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_descendants_are_found_below_descendants() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sh -c 'sleep 60; true'; true"]) as child:
        while len(below := keeper.descendants(os.getpid())) < 3:
            pass
        assert child.pid in below
        for pid in below:
            os.kill(pid, 9)
    assert not any(map(is_alive, [child.pid]))
