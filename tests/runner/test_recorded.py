from pathlib import Path

import pytest

import vfx
from tests.support.traces import make_trace
from vfx.errors import ConfigError
from vfx.runner.plan import Plan
from vfx.runner.recorded import Lookup, RecordedRun
from vfx.trace.record import TaskRef, Trace, encode_record


class Sum(vfx.Task):
    answer: int


def plan(*tasks: vfx.Task) -> Plan:
    return Plan([(task, 0) for task in tasks], 1)


def trace_of(task: vfx.Task, occurrence: int = 0, **changes: object) -> Trace:
    """A rollout of `task`, whose recorded data differs by `changes`; None takes a field out."""
    trace = make_trace()
    data = {name: value for name, value in {**task.data, **changes}.items() if value != "absent"}
    trace.task = TaskRef("Sum", task.key if not changes else "another", occurrence, data)
    return trace


ONE, TWO = Sum(prompt="1?", answer=1), Sum(prompt="2?", answer=2)


def test_a_task_is_found_by_its_key() -> None:
    assert Lookup(plan(ONE, TWO)).find(trace_of(TWO)) == (TWO, "")


def test_a_field_that_is_new_today_makes_no_difference() -> None:
    assert Lookup(plan(ONE, TWO)).find(trace_of(TWO, tags="absent")) == (TWO, "")


def test_other_data_is_another_task() -> None:
    task, reason = Lookup(plan(ONE, TWO)).find(trace_of(TWO, answer=3))
    assert (task, "other data" in reason) == (None, True)
    assert Lookup(plan(ONE)).find(trace_of(TWO))[0] is None


def test_a_field_that_is_gone_today_makes_another_task() -> None:
    assert Lookup(plan(ONE)).find(trace_of(ONE, hint="gone"))[0] is None


def test_the_same_key_with_other_data_is_told_apart() -> None:
    trace = trace_of(ONE)
    trace.task = TaskRef("Sum", ONE.key, 0, {**ONE.data, "answer": 5})
    assert Lookup(plan(ONE)).find(trace) == (None, "its task has other data now")


def test_equal_tasks_are_kept_apart() -> None:
    lookup = Lookup(Plan([(ONE, 0), (ONE, 1)], 1))
    assert lookup.find(trace_of(ONE, 1))[0] is ONE
    assert lookup.find(trace_of(ONE, 1, tags="absent"))[0] is ONE
    assert lookup.find(trace_of(ONE, 2))[0] is None


def write(folder: Path, *traces: Trace, name: str = "traces.jsonl", reason: str | None = None) -> None:
    extra = {"reason": reason} if reason else {}
    with (folder / name).open("ab") as file:
        file.writelines(encode_record({**trace.to_record(), **extra}) + b"\n" for trace in traces)


def test_records_are_grouped_by_task_and_ordered_by_rollout(tmp_path: Path) -> None:
    write(tmp_path, make_trace("a", rollout=1, reply="x\u2028y"), make_trace("b"), make_trace("a", rollout=0))
    run = RecordedRun(tmp_path)
    assert list(run.groups) == [("a", 0), ("b", 0)]
    assert [(trace.rollout, trace.last_reply) for trace in run.read(("a", 0))] == [(0, "four"), (1, "x\u2028y")]


def test_attempts_that_wait_for_their_group_cost_nothing_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, make_trace("a"))
    write(tmp_path, make_trace("a"), name="attempts.jsonl", reason="pending")
    write(tmp_path, make_trace("b"), name="attempts.jsonl", reason="retried")
    write(tmp_path, make_trace("c"), name="attempts.jsonl", reason="interrupted")
    found = [(trace.task.key, is_retry) for trace, is_retry in RecordedRun(tmp_path).attempts()]
    assert found == [("b", True), ("c", False)]


def test_a_run_without_records_and_one_recorded_twice(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").touch()
    with pytest.raises(ConfigError, match="has no finished rollout"):
        RecordedRun(tmp_path)
    write(tmp_path, make_trace("a"), make_trace("a"))
    with pytest.raises(ConfigError, match="line 2: the same rollout is recorded twice"):
        RecordedRun(tmp_path)
