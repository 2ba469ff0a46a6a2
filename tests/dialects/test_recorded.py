"""Exchanges of every dialect, from `recorded/`: read alike whole, streamed, cut anywhere, and when sent back."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.native_replies import message_events, response_events
from vfx.dialects.base import Dialect, StreamAssembler
from vfx.dialects.routes import ANTHROPIC, DIALECTS, RESPONSES
from vfx.messages import Completion, Sampling
from vfx.trace.graph import MessageGraph

RECORDED = {path.stem: json.loads(path.read_text("utf-8")) for path in Path(__file__).parent.glob("recorded/*.json")}

each = pytest.mark.parametrize("name", sorted(RECORDED))


def whole(name: str) -> Completion:
    record = RECORDED[name]
    return DIALECTS[record["route"]].read_completion(record["answer"])


def framed(name: str, frame: str = "event: {type}\ndata: {data}\n\n", *, dumps: Any = json.dumps) -> bytes:
    """The events of an exchange as bytes."""
    record = RECORDED[name]
    done = [] if "type" in record["events"][0] else ["data: [DONE]\n\n"]
    events = [
        frame.format(type=event.get("type", "message"), data=dumps(event, ensure_ascii=False))
        for event in record["events"]
    ]
    return "".join([*events, *done]).encode()


def assemble(name: str, *pieces: bytes) -> StreamAssembler:
    record = RECORDED[name]
    stream = DIALECTS[record["route"]].assemble(record["request"])
    for piece in pieces:
        stream.feed(piece)
    return stream


def comparable(completion: Completion) -> Any:
    """Arguments by value, since a whole answer of Anthropic's has them as an object, in no certain form."""
    messages = [
        (
            message.role,
            message.content,
            [(call.id, call.name, call.type, _by_value(call.arguments)) for call in message.tool_calls],
            message.reasoning,
            message.refusal,
            # Whole answers of OpenAI's have an empty list where a stream has nothing.
            {name: value for name, value in message.extra.items() if value != []},
            list(message.opaque),
        )
        for message in completion.messages
    ]
    return messages, completion.finish_reasons, completion.usage, completion.model, completion.id


def _by_value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def test_every_dialect_has_exchanges() -> None:
    assert {record["route"] for record in RECORDED.values()} == DIALECTS.keys()
    assert all("API reference" in record["source"] for record in RECORDED.values())


@each
def test_request_passes_unchanged_when_nothing_else_is_imposed(name: str) -> None:
    record = RECORDED[name]
    imposed = DIALECTS[record["route"]].impose(record["request"], record["request"]["model"], Sampling())
    assert json.dumps(imposed) == json.dumps(record["request"])


@each
def test_stream_holds_the_same_answer(name: str) -> None:
    stream = assemble(name, framed(name))
    assert (stream.is_done, stream.is_complete, stream.error) == (True, True, None)
    assert comparable(stream.completion()) == comparable(whole(name))
    assert stream.text == whole(name).messages[0].text


TOOL_ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": "é"}'}
TOOL_BLOCK = {"type": "tool_use", "id": "c", "name": "f", "input": {"x": "é"}}
TEXT = "北京 é 🌍"


@pytest.mark.parametrize(
    ("dialect", "events"),
    [(RESPONSES, response_events(TEXT, TOOL_ITEM)), (ANTHROPIC, message_events(TEXT, TOOL_BLOCK))],
    ids=["responses", "anthropic"],
)
def test_answer_does_not_depend_on_where_the_bytes_are_cut(dialect: Dialect, events: list[dict[str, Any]]) -> None:
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}" for event in events]
    raw = "".join(line + ("\n\n", "\r\n\r\n")[number % 2] for number, line in enumerate(lines)).encode()
    for cut in range(len(raw) + 1):
        stream = dialect.assemble({})
        stream.feed(raw[:cut])
        stream.feed(raw[cut:])
        (message,) = stream.completion().messages
        arguments = json.loads(message.tool_calls[0].arguments)
        assert (stream.is_complete, message.text, arguments) == (True, TEXT, {"x": "é"}), cut


@each
def test_bytes_may_come_one_by_one(name: str) -> None:
    stream = assemble(name, *(bytes([byte]) for byte in framed(name)))
    assert comparable(stream.completion()) == comparable(whole(name))


@each
@pytest.mark.parametrize(
    "frame",
    [
        "event: {type}\r\ndata: {data}\r\n\r\n",
        "event: {type}\rdata: {data}\r\r",
        "event:{type}\ndata:{data}\n\n",
        "data: {data}\n\n",
        ": comment\n\n\n\nevent: {type}\nid: 7\nretry: 5\n: inside\ndata: {data}\n\n",
    ],
)
def test_events_may_be_framed_in_any_way(name: str, frame: str) -> None:
    stream = assemble(name, b"\xef\xbb\xbf", framed(name, frame))
    assert comparable(stream.completion()) == comparable(whole(name))


@each
def test_an_event_may_be_spread_over_lines(name: str) -> None:
    def dumps(event: Any, **options: Any) -> str:
        return json.dumps(event, indent=1, **options).replace("\n", "\ndata: ")

    assert comparable(assemble(name, framed(name, dumps=dumps)).completion()) == comparable(whole(name))


@each
def test_stream_without_its_terminal_event_is_no_answer(name: str) -> None:
    raw = framed(name)
    terminal = raw.rstrip(b"\n").rindex(b"\n\n") + 2
    is_chat = RECORDED[name]["route"].endswith("completions")
    stream = assemble(name, raw[:terminal])
    stream.finish()
    # A finish reason is an end too in chat completions, whose [DONE] tells nothing.
    assert (stream.is_done, stream.is_complete, stream.error) == (False, is_chat, None)
    reasons = stream.completion().finish_reasons
    assert set(reasons) <= {None, *whole(name).finish_reasons}


@each
def test_answer_that_is_sent_back_is_the_same_message(name: str) -> None:
    record = RECORDED[name]
    dialect = DIALECTS[record["route"]]
    for completion in (whole(name), assemble(name, framed(name)).completion()):
        graph = MessageGraph()
        tools = record["request"].get("tools")
        (answer,) = graph.commit(dialect.read_prompt(record["request"]), completion.messages, tools=tools)
        graph.commit(
            dialect.read_prompt(record["follow_up"]),
            completion.messages,
            tools=record["follow_up"]["tools"] if tools else None,
        )
        assert [node.message.role for node in graph.nodes] == [*record["roles"], "assistant"]
        assert [graph.nodes[index].sampled for index in range(len(graph.nodes))].index(True) == answer
