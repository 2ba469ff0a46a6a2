import json
import math
from typing import Any

import pytest

from tests.support.traces import make_trace
from vfx.messages import Message
from vfx.runner.lines import encode_trace
from vfx.trace.reading import read_trace


def test_a_long_conversation_reads_back_as_it_was() -> None:
    trace = make_trace()
    messages = [Message("user", f"turn {number} \ud835 \u2028") for number in range(100)]
    trace.graph.commit(messages, [Message("assistant", "done")])
    trace.calls *= 70
    line = encode_trace(trace, {"reason": "retried"})
    assert line.startswith(b'{"reason":"retried",')
    assert b"\n" not in line
    again = read_trace(line)
    assert [node.message for node in again.nodes] == [node.message for node in trace.nodes]
    assert encode_trace(again, {"reason": "retried"}) == line


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {(1, 2): 3}, "\ud835", [{"deep": math.nan}]])
def test_what_has_no_json_form_is_kept_as_text_and_noted(value: Any) -> None:
    trace = make_trace(rewards={"r": 1.0})
    trace.info["odd"] = value
    line = encode_trace(trace, {})
    again = read_trace(json.dumps(json.loads(line, parse_constant=pytest.fail)))
    assert "odd" in again.info
    assert [error.kind for error in again.errors] == ["task"] * (value != "\ud835")
    assert again.errors == trace.errors


def test_a_structure_that_holds_itself_does_not_lose_the_rollout() -> None:
    trace = make_trace(rewards={"r": 1.0})
    trace.info["self"] = trace.info
    again = read_trace(encode_trace(trace, {}))
    assert again.info == {}
    assert again.last_reply == "four"
    assert "no JSON form" in again.errors[0].message
