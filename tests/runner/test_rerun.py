"""Which rollouts of a run are run again; that they are is tested from outside, in tests/cli/test_rerun.py."""

from pathlib import Path

import vfx
from tests.runner.test_recorded import ONE, TWO, Sum, plan, trace_of
from vfx.runner.recorded import RecordedRun
from vfx.runner.rerun import Selection, select
from vfx.trace.record import ErrorRecord, Trace, encode_record


def rollout(of: vfx.Task, number: int, *kinds: str) -> Trace:
    trace = trace_of(of)
    trace.rollout = number
    trace.errors = [ErrorRecord(kind, "it failed") for kind in kinds]
    return trace


def selected(folder: Path, *traces: Trace, today: tuple[vfx.Task, ...] = (ONE, TWO)) -> Selection:
    lines = [encode_record(trace.to_record()) + b"\n" for trace in traces]
    (folder / "traces.jsonl").write_bytes(b"".join(lines))
    return select(RecordedRun(folder), plan(*today))


def test_rollouts_without_answers_stay_and_others_are_run_whatever_became_of_them(tmp_path: Path) -> None:
    kinds = ("provider", "interception", "tunnel", "harness", "scoring", "drift")
    found = selected(tmp_path, rollout(ONE, 0), *(rollout(ONE, n, kind) for n, kind in enumerate(kinds, start=1)))
    assert {number for _, _, number in found.kept} == {1, 2, 3}
    assert {number for _, _, number in found.offsets} == set(range(7))
    assert {number for _, _, number in found.not_run()} == {1, 2, 3}


def test_rollouts_that_were_never_recorded_are_not_run(tmp_path: Path) -> None:
    found = selected(tmp_path, rollout(ONE, 0), rollout(ONE, 3))
    assert {number for _, _, number in found.not_run()} == {1, 2}
    assert found.read((ONE.key, 0, 1)) is None
    trace = found.read((ONE.key, 0, 3))
    assert trace is not None
    assert trace.rollout == 3


def test_tasks_that_are_gone_are_left_out(tmp_path: Path) -> None:
    found = selected(tmp_path, rollout(ONE, 0), rollout(TWO, 0), rollout(TWO, 1), today=(ONE,))
    assert [task for task, _ in found.plan.tasks] == [ONE]
    assert [tasks.total() for tasks in found.changes.left_out.values()] == [2]


def test_a_rollout_is_known_by_the_key_of_today(tmp_path: Path) -> None:
    """Fields that were added since then change the key, and not the task."""
    recorded = trace_of(ONE, tags="absent")
    found = selected(tmp_path, recorded, today=(Sum(prompt="1?", answer=1),))
    assert recorded.task.key != ONE.key
    assert list(found.offsets) == [(ONE.key, 0, recorded.rollout)]
