"""What every dialect promises, whatever a provider or a program sends."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vfx.dialects.base import Dialect
from vfx.dialects.routes import DIALECTS
from vfx.messages import Sampling

each = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.path)

KINDS = [
    *(
        "assistant",
        "user",
        "message",
        "text",
        "output_text",
        "refusal",
        "reasoning",
        "function_call",
        "custom_tool_call",
    ),
    *("function_call_output", "item_reference", "odd_call", "tool_use", "tool_result", "thinking", "server_tool_use"),
    *("text_delta", "input_json_delta", "citations_delta", "signature_delta", "message_start", "content_block_start"),
    *("content_block_delta", "message_delta", "message_stop", "error", "response.created", "response.completed"),
    *("response.output_item.added", "response.output_item.done", "response.output_text.delta", "response.failed"),
    *("response.reasoning_summary_text.delta", "response.function_call_arguments.done", "completed", "incomplete"),
]
NAMES = [
    *("type", "role", "content", "text", "input", "instructions", "messages", "output", "item", "response", "delta"),
    *("index", "output_index", "content_index", "error", "message", "usage", "status", "choices", "tool_calls", "id"),
    *("call_id", "arguments", "name", "function", "content_block", "partial_json", "thinking", "signature", "system"),
    *("tool_use_id", "summary", "encrypted_content", "finish_reason", "stop_reason", "citation", "model", "data"),
]
LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "a", "\ud83c", "{}", *KINDS])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


@each
@given(events=st.lists(BODIES, max_size=6))
def test_no_stream_breaks_an_assembler(dialect: Dialect, events: list[Any]) -> None:
    stream = dialect.assemble({})
    for event in events:
        stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    stream.finish()
    completion = stream.completion()
    assert isinstance(stream.text, str)
    assert not (stream.is_complete and (stream.error or not completion.messages))


@each
@given(body=BODIES)
@example(body={"input": [{"type": []}]})
@example(body={"output": [{"type": {}, "call_id": "1"}]})
@example(body={"input": [{"role": "user", "content": [{"type": [], "text": "x"}]}]})
def test_a_body_is_read_or_refused_with_its_place(dialect: Dialect, body: dict[str, Any]) -> None:
    for read in (dialect.read_prompt, dialect.read_completion):
        try:
            read(body)
        except ValueError as error:
            assert ":" in str(error)  # noqa: PT017 - either is right
    dialect.read_earlier(body)
    dialect.resolve(body, {"a": {}})


@each
def test_imposing_replaces_values_and_leaves_the_rest_where_it_was(dialect: Dialect) -> None:
    body = {"zeta": 1, "model": "theirs", "temperature": 1, "alpha": None}
    imposed = dialect.impose(body, "ours", Sampling(temperature=0.5, extra={"top_k": 3}))
    assert list(imposed.items()) == [
        ("zeta", 1),
        ("model", "ours"),
        ("temperature", 0.5),
        ("alpha", None),
        ("top_k", 3),
    ]
    assert body["model"] == "theirs"


@each
def test_every_setting_is_imposed_or_told_not_to_be(dialect: Dialect) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.5, max_tokens=3, seed=4, stop=("x",))
    imposed = dialect.impose({}, "m", sampling)
    assert len(imposed) == 6 - len(dialect.not_imposed)
    assert dialect.read_sampling(imposed).keys() == imposed.keys() - {"model"}


@each
def test_errors_are_json_with_their_message(dialect: Dialect) -> None:
    body = json.loads(dialect.error_body("no \ud835", type="invalid_request_error", code="c"))
    assert (body["error"]["message"], body["error"]["type"]) == ("no \ud835", "invalid_request_error")
