import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.traces import make_trace
from vfx.errors import ProviderError, ScoringError, attributed
from vfx.messages import Message, Usage
from vfx.redaction import conceal
from vfx.trace.record import ErrorRecord, Score, encode_record


def test_reward_is_the_weighted_sum() -> None:
    trace = make_trace(rewards={"a": 1.0, "b": 0.5})
    trace.rewards["b"] = Score(0.5, weight=2.0)
    assert trace.reward == 2.0


@pytest.mark.parametrize(
    "trace",
    [
        make_trace(rewards={"a": 1.0}, error=ProviderError("gone")),
        make_trace(rewards={"a": 1.0, "b": None}),
        make_trace(rewards={}),
    ],
    ids=["errored", "one has no score", "none"],
)
def test_missing_reward_is_null_and_never_zero(trace: object) -> None:
    assert trace.reward is None  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_accessors_follow_the_final_branch() -> None:
    trace = make_trace(reply="first")
    assert trace.last_reply == "first"
    assert [message.role for message in trace.messages] == ["user", "assistant"]
    assert trace.transcript == "user: 2 + 2?\n\nassistant: first"
    assert trace.num_turns == 1


def test_a_trace_without_turns_has_no_reply() -> None:
    trace = make_trace(reply=None)
    assert (trace.last_reply, trace.messages, trace.usage) == ("", [], Usage())


def test_record_is_one_line_of_strict_json() -> None:
    trace = make_trace(reply="one\u2028two\x85three\nfour", rewards={"a": 1.0})
    line = encode_record(trace.to_record())
    assert b"\n" not in line
    assert json.loads(line)["nodes"][1]["message"]["content"] == "one\u2028two\x85three\nfour"


def test_lone_surrogates_survive_as_escapes() -> None:
    line = encode_record(make_trace(reply="\ud835 北京").to_record())
    line.decode("utf-8")
    assert json.loads(line)["nodes"][1]["message"]["content"] == "\ud835 北京"


def test_common_values_of_hooks_have_a_json_form() -> None:
    trace = make_trace()
    trace.info = {"path": Path("a/b"), "when": datetime(2026, 1, 2, tzinfo=UTC), "set": {1}}
    assert json.loads(encode_record(trace.to_record()))["info"]["path"] == "a/b"


def test_numbers_that_are_not_finite_are_refused() -> None:
    trace = make_trace()
    trace.info = {"x": float("nan")}
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_record(trace.to_record())


def test_error_record_keeps_the_cause_and_hides_secrets() -> None:
    conceal("hunter2-secret")
    with pytest.raises(ScoringError) as caught, attributed(ScoringError, "reward 'exact'"):
        raise KeyError("hunter2-secret")
    record = ErrorRecord.of(caught.value)
    assert record.kind == "scoring"
    assert record.message == "reward 'exact': KeyError: '***'"
    assert record.traceback is not None
    assert "hunter2-secret" not in record.traceback
    assert "raise KeyError" in record.traceback


def test_plain_messages_stay_plain() -> None:
    record = make_trace().to_record()
    assert record["nodes"][0]["message"] == {"role": "user", "content": "2 + 2?"}
    assert Message("tool", None).text == ""


def test_bytes_are_text_or_have_no_json_form() -> None:
    assert encode_record({"data": b"text"}) == b'{"data":"text"}'
    with pytest.raises(ValueError, match="utf-8"):
        encode_record({"data": b"\xff"})
