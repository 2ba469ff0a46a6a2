"""Replies of the scripted provider in the dialects of OpenAI Responses and Anthropic Messages, whole and streamed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tests.support.replies import MODEL, Reply

__all__ = [
    "message",
    "message_events",
    "message_stream",
    "response",
    "response_events",
    "response_stream",
    "sse",
    "text_item",
]

Object = dict[str, Any]
Ending = Literal["normal", "reset", "hang", "close-early"]

JSON_TYPE = {"Content-Type": "application/json"}
STREAM_TYPE = {"Content-Type": "text/event-stream"}


def sse(events: Sequence[Object]) -> list[bytes]:
    """Each event as both dialects send it, its type also as the event's name."""
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def text_item(text: str, id: str = "msg_1") -> Object:
    """An output item of a response that holds a text."""
    part: Object = {"type": "output_text", "text": text, "annotations": []}
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _response(output: Sequence[Mapping[str, Any]], usage: tuple[int, int] | None, fields: Object) -> Object:
    counts = usage and {
        "input_tokens": usage[0],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage[1],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(usage),
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": MODEL,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": counts,
        **fields,
    }


def response(*output: Mapping[str, Any] | str, usage: tuple[int, int] | None = (5, 3), **fields: Any) -> Reply:
    """A complete response; a text among `output` is an item, `usage` is (prompt, answer) tokens."""
    items = [text_item(item) if isinstance(item, str) else item for item in output]
    return Reply(200, JSON_TYPE, json.dumps(_response(items, usage, fields)).encode())


def response_events(
    *output: Mapping[str, Any] | str, usage: tuple[int, int] | None = (5, 3), **fields: Any
) -> list[Object]:
    """The events of a response. Texts are streamed letter by letter."""
    items = [text_item(item) if isinstance(item, str) else dict(item) for item in output]
    whole = _response(items, usage, fields)
    begun = _response([], None, fields | {"status": "in_progress"})
    events: list[Object] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item.get("id")}
        empty = item | {"status": "in_progress"}
        if item["type"] == "message":
            empty["content"] = []
        pieces: list[Object] = []
        for name, field in (("function_call_arguments", "arguments"), ("custom_tool_call_input", "input")):
            if field in item:
                empty[field] = ""
                pieces += [{"type": f"response.{name}.delta", "delta": char} for char in item[field]]
                pieces.append({"type": f"response.{name}.done", field: item[field]})
        content: list[Object] = item.get("content") or []
        for at, part in enumerate(content):
            if part["type"] == "output_text":
                common = {"content_index": at}
                pieces.append({"type": "response.content_part.added", "part": part | {"text": ""}} | common)
                pieces += [{"type": "response.output_text.delta", "delta": char} | common for char in part["text"]]
                pieces.append({"type": "response.output_text.done", "text": part["text"]} | common)
        events.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        events += [piece | place for piece in pieces]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    kind = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    events.append({"type": kind, "response": whole})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def response_stream(
    *output: Mapping[str, Any] | str,
    cut: int = 0,
    then: Sequence[Object] = (),
    ending: Ending = "normal",
    chunk_delay: float | Sequence[float] = 0.0,
    **fields: Any,
) -> Reply:
    """A response as an event stream, one chunk an event.

    Args:
        output: Its items.
        cut: How many events are missing at its end.
        then: Events that come in their place.
        ending: What follows the last event.
        chunk_delay: Seconds before each event.
        fields: Replace fields of the response.
    """
    events = response_events(*output, **fields)
    chunks = sse([*events[: len(events) - cut], *then])
    return Reply(200, STREAM_TYPE, chunks=chunks, ending=ending, chunk_delay=chunk_delay)


def _message(content: Sequence[Mapping[str, Any]], usage: Object | None, fields: Object) -> Object:
    kinds = {block["type"] for block in content}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": list(content),
        "stop_reason": "tool_use" if "tool_use" in kinds else "end_turn",
        "stop_sequence": None,
        "usage": usage,
        **fields,
    }


USAGE = {"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 3}


def _blocks(content: Sequence[Mapping[str, Any] | str]) -> list[Object]:
    return [{"type": "text", "text": block} if isinstance(block, str) else dict(block) for block in content]


def message(*content: Mapping[str, Any] | str, usage: Object | None = USAGE, **fields: Any) -> Reply:
    """A complete message; a text among `content` is a block."""
    return Reply(200, JSON_TYPE, json.dumps(_message(_blocks(content), usage, fields)).encode())


# The field that a block streams in pieces, as the deltas call it, by the block's type.
_STREAMED = {"text": ("text", "text_delta", "text"), "thinking": ("thinking", "thinking_delta", "thinking")}


def message_events(*content: Mapping[str, Any] | str, usage: Object | None = USAGE, **fields: Any) -> list[Object]:
    """The events of a message. Texts are streamed letter by letter, inputs of tools as JSON in pieces of five."""
    whole = _message(_blocks(content), usage, fields)
    begun: Object = {**whole, "content": [], "stop_reason": None}
    events: list[Object] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        kind, empty, deltas = block["type"], dict(block), list[Object]()
        if kind in _STREAMED:
            field, delta, name = _STREAMED[kind]
            empty[field] = ""
            deltas = [{"type": delta, name: char} for char in block[field]]
            if "signature" in block:
                empty["signature"] = ""
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif "input" in block:
            empty["input"], raw = {}, json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            pieces = [raw[start : start + 5] for start in range(0, len(raw), 5)]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    counts = {} if usage is None else {"usage": {"output_tokens": usage["output_tokens"]}}
    return [*events, {"type": "message_delta", "delta": delta, **counts}, {"type": "message_stop"}]


def message_stream(
    *content: Mapping[str, Any] | str,
    cut: int = 0,
    then: Sequence[Object] = (),
    ending: Ending = "normal",
    chunk_delay: float | Sequence[float] = 0.0,
    **fields: Any,
) -> Reply:
    """A message as an event stream, one chunk an event.

    Args:
        content: Its blocks.
        cut: How many events are missing at its end.
        then: Events that come in their place.
        ending: What follows the last event.
        chunk_delay: Seconds before each event.
        fields: Replace fields of the message.
    """
    events = message_events(*content, **fields)
    chunks = sse([*events[: len(events) - cut], *then])
    return Reply(200, STREAM_TYPE, chunks=chunks, ending=ending, chunk_delay=chunk_delay)
