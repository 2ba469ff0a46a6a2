import json
from pathlib import Path

import pytest

from tests.support.traces import make_trace
from vfx.errors import ScoringError
from vfx.messages import Message, ToolCall
from vfx.trace.reading import read_lines, read_trace
from vfx.trace.record import Trace, encode_record


def full_trace() -> Trace:
    trace = make_trace(rewards={"a": 1.0, "b": None}, error=ScoringError("odd"))
    answer = Message("assistant", None, tool_calls=(ToolCall("1", "f", "{}"),), reasoning="hm", extra={"x": [1]})
    nodes = trace.graph.commit([Message("user", [{"type": "text", "text": "hi"}])], [answer])
    trace.calls[0].nodes = nodes
    trace.metrics = {"m": 0.5, "n": None}
    trace.info = {"note": "\ud835 \u2028"}
    trace.stop_condition = "max_turns"
    return trace


def test_a_trace_reads_back_as_it_was() -> None:
    record = full_trace().to_record()
    assert read_trace(encode_record(record)).to_record() == json.loads(encode_record(record))


def test_accessors_work_on_what_was_read() -> None:
    trace = read_trace(encode_record(make_trace(reply="four", rewards={"a": 1.0}).to_record()))
    assert (trace.last_reply, trace.reward, trace.num_turns, trace.usage.output_tokens) == ("four", 1.0, 1, 1)


def test_unknown_fields_of_the_same_schema_are_passed_over() -> None:
    record = make_trace().to_record()
    record["task"]["colour"] = "blue"
    assert read_trace(json.dumps(record)).task.key == "k"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[]", "expected a trace, got list"),
        (b"{}", "schema_version"),
        (b'{"schema_version": 99}', "expected at most 1, got 99"),
        (b'{"schema_version": 1}', "not a trace: KeyError"),
        (b'{"schema_ver', "Unterminated"),
    ],
)
def test_what_is_not_a_trace_is_refused_with_its_reason(line: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_trace(line)


def test_lines_end_at_the_newline_byte_alone_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    first = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\rh".encode()
    path.write_bytes(first + b"\nsecond\nto")
    assert list(read_lines(path)) == [(0, first), (len(first) + 1, b"second")]
