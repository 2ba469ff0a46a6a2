import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support.traces import make_trace
from vfx.authoring.hooks import group_reward
from vfx.authoring.task import Task
from vfx.errors import ConfigError, ProviderError
from vfx.runner.plan import Plan
from vfx.runner.resume import Earlier, recover
from vfx.runner.store import ATTEMPTS, CONFIG, TORN, TRACES, RunStore
from vfx.trace.record import Trace

pytestmark = pytest.mark.anyio


class Named(Task):
    @cached_property
    def key(self) -> str:
        return str(self.prompt)


class Compared(Named):
    @group_reward
    def order(self, traces: Sequence[Trace]) -> list[float]:
        return [1.0 for _ in traces]


def plan_of(*keys: str, rollouts: int = 1, kind: type[Task] = Named) -> Plan:
    return Plan([(kind(prompt=key), 0) for key in keys], rollouts)


async def leave(folder: Path, *traces: Trace, pending: Sequence[Trace] = (), torn: bytes = b"") -> None:
    """What a launch that is over left."""
    store = RunStore(folder)
    store.write_whole(CONFIG, b"")
    for trace in pending:
        await store.append_attempt(trace, "pending")
    for trace in traces:
        await store.append(trace)
    store.close()
    with (folder / TRACES).open("ab") as file:
        file.write(torn)


def go_on(folder: Path, plan: Plan) -> Earlier:
    store = RunStore(folder, resume=True)
    try:
        return recover(store, plan)
    finally:
        store.close()


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def errored(key: str) -> Trace:
    return make_trace(key, reply=None, error=ProviderError("gone"))


async def test_finished_rollouts_are_not_owed_and_are_counted(tmp_path: Path) -> None:
    await leave(tmp_path, make_trace("a", rewards={"r": 1.0}), make_trace("b", rewards={"r": 0.0}))
    earlier = go_on(tmp_path, plan_of("a", "b", "c"))
    assert earlier.finished == {("a", 0, 0), ("b", 0, 0)}
    assert [earlier.has_ended((key, 0, 0)) for key in "abc"] == [True, True, False]
    assert earlier.tally.reward.mean == 0.5


async def test_a_torn_last_line_is_put_aside(tmp_path: Path) -> None:
    await leave(tmp_path, make_trace("a"), torn=b'{"id": "cut \xe5')
    earlier = go_on(tmp_path, plan_of("a", "b"))
    assert earlier.finished == {("a", 0, 0)}
    assert (tmp_path / TORN).read_bytes() == b'{"id": "cut \xe5\n'
    assert [record["id"] for record in records(tmp_path / TRACES)] == ["a-0"]


async def test_errored_records_are_taken_out_and_the_others_stay_as_they_were(tmp_path: Path) -> None:
    await leave(tmp_path, make_trace("a"), errored("b"), make_trace("c"))
    first, second, third = (tmp_path / TRACES).read_bytes().splitlines()
    earlier = go_on(tmp_path, plan_of("a", "b", "c"))
    assert (tmp_path / TRACES).read_bytes() == first + b"\n" + third + b"\n"
    assert (tmp_path / ATTEMPTS).read_bytes() == b'{"reason":"redone",' + second[1:] + b"\n"
    assert not earlier.has_ended(("b", 0, 0))
    assert earlier.tally.errored == 0


async def test_an_errored_record_that_is_not_asked_for_stays(tmp_path: Path) -> None:
    await leave(tmp_path, make_trace("a"), errored("b"))
    before = (tmp_path / TRACES).read_bytes()
    earlier = go_on(tmp_path, plan_of("a"))
    assert (tmp_path / TRACES).read_bytes() == before
    assert earlier.tally.errored == 1


async def test_a_record_that_stands_twice_counts_once(tmp_path: Path) -> None:
    await leave(tmp_path, make_trace("a"), make_trace("a"))
    earlier = go_on(tmp_path, plan_of("a"))
    assert earlier.tally.scored == len(records(tmp_path / TRACES)) == 1
    assert [record["reason"] for record in records(tmp_path / ATTEMPTS)] == ["duplicate"]


async def test_pending_members_have_ended_and_wait_for_their_group(tmp_path: Path) -> None:
    await leave(tmp_path, pending=[make_trace("a", rollout=0), make_trace("a", rollout=2)])
    earlier = go_on(tmp_path, plan_of("a", rollouts=3, kind=Compared))
    assert [earlier.has_ended(("a", 0, number)) for number in range(3)] == [True, False, True]
    assert [trace.rollout for trace in earlier.pending["a", 0]] == [0, 2]
    assert earlier.tally.calls == 0


async def test_a_group_that_was_half_written_is_put_together_again(tmp_path: Path) -> None:
    members = [make_trace("a", rollout=number) for number in range(3)]
    await leave(tmp_path, members[0], pending=members)
    earlier = go_on(tmp_path, plan_of("a", rollouts=3, kind=Compared))
    assert records(tmp_path / TRACES) == []
    assert sorted(trace.rollout for trace in earlier.pending["a", 0]) == [0, 1, 2]
    # Their lines were there already.
    assert len(records(tmp_path / ATTEMPTS)) == 3


async def test_a_complete_group_is_left_alone(tmp_path: Path) -> None:
    members = [make_trace("a", rollout=number) for number in range(2)]
    await leave(tmp_path, *members, pending=members)
    before = (tmp_path / TRACES).read_bytes()
    earlier = go_on(tmp_path, plan_of("a", rollouts=2, kind=Compared))
    assert (tmp_path / TRACES).read_bytes() == before
    assert earlier.pending == {}
    assert earlier.tally.calls == 2


async def test_members_that_only_failed_to_be_compared_are_not_paid_for_again(tmp_path: Path) -> None:
    members = [make_trace("a", rollout=number) for number in range(2)]
    await leave(tmp_path, pending=members)
    store = RunStore(tmp_path, resume=True)
    store.open()
    for member in members:
        member.errors.append(errored("a").errors[0])
    await store.append(*members)
    store.close()
    earlier = go_on(tmp_path, plan_of("a", rollouts=2, kind=Compared))
    assert len(earlier.pending["a", 0]) == 2
    assert not any(trace.errors for trace in earlier.pending["a", 0])
    assert go_on(tmp_path, plan_of("a", rollouts=2, kind=Compared)).tally.calls == 0


@pytest.mark.parametrize("bad", [b"not json", b"[]", b"{}", b"", b'{"schema_version": 99}', b"[" * 100_000])
@pytest.mark.parametrize("name", [TRACES, ATTEMPTS])
async def test_a_bad_line_is_named_and_nothing_is_changed(tmp_path: Path, name: str, bad: bytes) -> None:
    await leave(tmp_path, make_trace("a"), errored("b"), pending=[make_trace("c")], torn=b"torn")
    path = tmp_path / name
    good = path.read_bytes()
    path.write_bytes(good.partition(b"\n")[0] + b"\n" + bad + b"\n" + good.partition(b"\n")[2])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=rf"{name}: line 2 is no record"):
        go_on(tmp_path, plan_of("a", "b"))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


class Killed(BaseException):
    """The process is gone at this point: nothing is cleaned up."""


def killing(calls: Iterator[int], at: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if next(calls) == at:
            if function is os.write:
                function(args[0], args[1][: len(args[1]) // 2])
            raise Killed
        return function(*args)

    return call


@pytest.mark.parametrize("at", range(12))
async def test_a_kill_at_any_point_is_made_good_by_the_next_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    plan = plan_of("a", "b", "c", "d", rollouts=1)
    for name in ("straight", "killed"):
        await leave(tmp_path / name, make_trace("a"), errored("b"), make_trace("c"), errored("d"), torn=b"torn")
    go_on(tmp_path / "straight", plan)
    calls = iter(range(1000))
    with monkeypatch.context() as patch:
        for name, function in (("write", os.write), ("fsync", os.fsync), ("replace", os.replace)):
            # A kill can't be had inside a test's own process.
            patch.setattr(os, name, killing(calls, at, function))
        try:
            go_on(tmp_path / "killed", plan)
        except Killed:
            pass
        else:
            assert next(calls) <= at, "the kill never came"
    go_on(tmp_path / "killed", plan)
    for name in (TRACES, ATTEMPTS):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert b"torn\n" in (tmp_path / "killed" / TORN).read_bytes()
