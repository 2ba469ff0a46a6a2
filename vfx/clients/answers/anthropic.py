"""Writes an answer as a message of Anthropic's. Thoughts come first and tool calls last: the trace keeps no order."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vfx.clients.answers.answer import ANTHROPIC_WORDS, Answer, Fields, Writer, finish_word, words
from vfx.messages import Message, ToolCall, Usage

__all__ = ["ANTHROPIC_WRITER"]


def _whole(answer: Answer) -> Fields:
    return _common(answer) | {
        "content": [*_blocks(answer.message)],
        "stop_reason": finish_word(answer, 0, ANTHROPIC_WORDS),
        "usage": _input_usage(answer.completion.usage) | _output_usage(answer.completion.usage),
    }


def _common(answer: Answer) -> Fields:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.completion.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _input_usage(usage: Usage) -> Fields:
    # Here what was read from the cache counts apart.
    fresh, cached = usage.input_tokens, usage.cached_tokens
    counts = {
        "input_tokens": None if fresh is None else fresh - (cached or 0),
        "cache_read_input_tokens": cached,
    }
    return counts if cached is not None else {"input_tokens": fresh}


def _output_usage(usage: Usage) -> Fields:
    return {"output_tokens": usage.output_tokens}


def _blocks(message: Message) -> Iterator[Fields]:
    yield from _thoughts(message)
    content = message.content
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    else:
        yield from map(_plain_block, content or ())
    if message.refusal:
        yield {"type": "text", "text": message.refusal}
    for call in message.tool_calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}


def _thoughts(message: Message) -> Iterator[Fields]:
    """The thoughts with the first signature, since the trace holds them as one text; those of other makes are left."""
    opaque = [state for state in message.opaque if state.get("type") in ("thinking", "redacted_thinking")]
    untold = message.reasoning or ""
    if untold and not any(state["type"] == "thinking" for state in opaque):
        yield {"type": "thinking", "thinking": untold, "signature": ""}
    for state in opaque:
        if state["type"] == "thinking":
            yield {"type": "thinking", "thinking": untold, "signature": state["signature"]}
            untold = ""
        else:
            yield dict(state)


def _plain_block(part: Mapping[str, Any]) -> Fields:
    # What other dialects call a text.
    return {"type": "text", "text": part["text"]} if part.get("type") == "output_text" else dict(part)


def _input(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments


def _events(answer: Answer) -> list[Fields]:
    usage = answer.completion.usage
    events: list[Fields] = [{"type": "message_start", "message": _common(answer) | {"usage": _begun_usage(usage)}}]
    calls = {call.id: call.arguments for call in answer.message.tool_calls}
    for index, block in enumerate(_blocks(answer.message)):
        empty, deltas = _begun(block, calls)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": finish_word(answer, 0, ANTHROPIC_WORDS), "stop_sequence": None}
    end: Fields = {"type": "message_delta", "delta": delta, "usage": _output_usage(usage)}
    return [*events, end, {"type": "message_stop"}]


def _begun_usage(usage: Usage) -> Fields:
    begun = {} if usage.output_tokens is None else {"output_tokens": 0}
    return _input_usage(usage) | begun


def _begun(block: Fields, calls: Mapping[str, str]) -> tuple[Fields, list[Fields]]:
    """A block as it begins, and what is streamed of it. Blocks of the provider's own tools come at once."""
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in words(block["text"])]
    if kind == "thinking":
        deltas: list[Fields] = [{"type": "thinking_delta", "thinking": piece} for piece in words(block["thinking"])]
        if block["signature"]:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        pieces = words(calls[block["id"]])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block, []


ANTHROPIC_WRITER = Writer(_whole, _events)
