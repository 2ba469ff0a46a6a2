import errno
import json
import os
from pathlib import Path

import pytest

from tests.support.traces import make_trace
from vfx.errors import ConfigError, RunError
from vfx.runner.store import ATTEMPTS, CONFIG, TRACES, RunStore, replace_file

pytestmark = pytest.mark.anyio


async def test_each_record_is_one_whole_line(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    for number in range(3):
        await store.append(make_trace(rollout=number, reply="a\nb\u2028c"))
    store.close()
    lines = (tmp_path / "run" / TRACES).read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line)["rollout"] for line in lines] == [0, 1, 2]


async def test_attempts_are_kept_apart_with_their_reason(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    await store.append_attempt(make_trace(), "interrupted")
    store.close()
    assert json.loads((tmp_path / ATTEMPTS).read_text())["reason"] == "interrupted"
    assert (tmp_path / TRACES).read_bytes() == b""


async def test_a_record_that_does_not_fit_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    await store.append(make_trace(rollout=0))
    whole = (tmp_path / TRACES).read_bytes()
    # A full disk can't be had in a unit test: the system call writes a part, as it then does.
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(RunError, match="No space left"):
        await store.append(make_trace(rollout=1))
    store.close()
    assert (tmp_path / TRACES).read_bytes() == whole


async def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    first = RunStore(tmp_path)
    first.write_whole(CONFIG, b"")
    first.close()
    with pytest.raises(ConfigError, match="--replace"):
        RunStore(tmp_path)


async def test_replace_starts_empty(tmp_path: Path) -> None:
    first = RunStore(tmp_path / "run")
    first.write_whole(CONFIG, b"")
    await first.append(make_trace())
    first.close()
    second = RunStore(tmp_path / "run", replace=True)
    second.close()
    assert (tmp_path / "run" / TRACES).read_bytes() == b""


async def test_replace_removes_only_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="not a run folder"):
        RunStore(tmp_path, replace=True)
    assert (tmp_path / "thesis.tex").exists()


async def test_several_records_are_written_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    await store.append(make_trace(rollout=0), make_trace(rollout=1))
    whole = (tmp_path / TRACES).read_bytes()
    assert whole.count(b"\n") == 2
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(whole) - 5]))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(RunError, match="--resume"):
        await store.append(make_trace(rollout=2), make_trace(rollout=3))
    store.close()
    assert (tmp_path / TRACES).read_bytes() == whole


async def test_to_resume_changes_nothing_by_itself(tmp_path: Path) -> None:
    first = RunStore(tmp_path)
    first.write_whole(CONFIG, b"x")
    await first.append(make_trace())
    first.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    RunStore(tmp_path, resume=True).close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


async def test_replace_takes_what_a_killed_launch_left(tmp_path: Path) -> None:
    RunStore(tmp_path).close()
    (tmp_path / "config.toml.new").write_text("half")
    RunStore(tmp_path, replace=True).close()
    assert not (tmp_path / "config.toml.new").exists()


def test_a_file_that_can_not_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"old")

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # A full disk can't be had in a unit test.
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match="No space left"):
        replace_file(path, [b"new"])
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("small", b"old")]


async def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    first = RunStore(tmp_path)
    first.write_whole(CONFIG, b"")
    await first.append(make_trace())
    with pytest.raises(ConfigError, match="another process"):
        RunStore(tmp_path, replace=True)
    first.close()
    assert (tmp_path / TRACES).read_bytes() != b""
