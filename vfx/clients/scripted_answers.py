"""What the scripted client answers, as the provider of each dialect would write it, whole or as events."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfx.dialects.routes import ANTHROPIC, CHAT, RESPONSES

__all__ = ["WRITERS", "Answer", "Writer"]

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, by what every dialect tells of it."""

    text: str
    model: str
    number: int
    """Of this answer in the run, from 1; for its id."""
    input_tokens: int
    output_tokens: int
    is_usage_streamed: bool
    """Whether a stream of chat completions ends with the usage."""

    @property
    def pieces(self) -> Sequence[str]:
        """The text word by word."""
        first, *others = self.text.split(" ")
        return [first, *(f" {word}" for word in others)]


@dataclass(frozen=True, slots=True)
class Writer:
    """How one dialect writes it."""

    whole: Callable[[Answer], Fields]
    events: Callable[[Answer], list[Fields]]
    """The events of a stream, each with its type where the dialect has types."""
    is_typed: bool = True
    """Whether events have names; the others end with `[DONE]`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """One piece an event."""
        if self.is_typed:
            return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in self.events(answer)]
        lines = [*map(json.dumps, self.events(answer)), "[DONE]"]
        return [f"data: {line}\n\n".encode() for line in lines]


def _chat_usage(answer: Answer) -> Fields:
    prompt, completion = answer.input_tokens, answer.output_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _chat(answer: Answer) -> Fields:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer.text}, "finish_reason": "stop"}
    return _chat_common(answer, "chat.completion") | {"choices": [choice], "usage": _chat_usage(answer)}


def _chat_common(answer: Answer, kind: str) -> Fields:
    return {"id": f"chatcmpl-scripted-{answer.number}", "created": 0, "model": answer.model, "object": kind}


def _chat_events(answer: Answer) -> list[Fields]:
    deltas: list[Fields] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in answer.pieces)]
    choices: list[Fields] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events: list[Fields] = [{"choices": [choice]} for choice in choices]
    if answer.is_usage_streamed:
        events.append({"choices": [], "usage": _chat_usage(answer)})
    return [_chat_common(answer, "chat.completion.chunk") | event for event in events]


def _response(answer: Answer) -> Fields:
    total = answer.input_tokens + answer.output_tokens
    usage = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens, "total_tokens": total}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return _response_begun(answer) | {"status": "completed", "output": [_item(answer)], "usage": usage | details}


def _response_begun(answer: Answer) -> Fields:
    return {
        "id": f"resp_scripted_{answer.number}",
        "object": "response",
        "created_at": 0,
        "model": answer.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _item(answer: Answer) -> Fields:
    content: list[Fields] = [{"type": "output_text", "text": answer.text, "annotations": []}]
    common = {"id": f"msg_scripted_{answer.number}", "type": "message", "role": "assistant"}
    return common | {"status": "completed", "content": content}


def _response_events(answer: Answer) -> list[Fields]:
    item = _item(answer)
    (part,) = item["content"]
    empty: Fields = {**item, "status": "in_progress", "content": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    pieces: list[Fields] = [place | {"type": "response.output_text.delta", "delta": piece} for piece in answer.pieces]
    events: list[Fields] = [
        {"type": "response.created", "response": _response_begun(answer)},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
        place | {"type": "response.content_part.added", "part": {**part, "text": ""}},
        *pieces,
        place | {"type": "response.output_text.done", "text": answer.text},
        place | {"type": "response.content_part.done", "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": _response(answer)},
    ]
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _message(answer: Answer) -> Fields:
    usage = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
    return _message_begun(answer) | {
        "content": [{"type": "text", "text": answer.text}],
        "stop_reason": "end_turn",
        "usage": usage,
    }


def _message_begun(answer: Answer) -> Fields:
    return {
        "id": f"msg_scripted_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": 0},
    }


def _message_events(answer: Answer) -> list[Fields]:
    deltas: list[Fields] = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
    return [
        {"type": "message_start", "message": _message_begun(answer)},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": answer.output_tokens},
        },
        {"type": "message_stop"},
    ]


WRITERS: Mapping[str, Writer] = {
    CHAT.path: Writer(_chat, _chat_events, is_typed=False),
    RESPONSES.path: Writer(_response, _response_events),
    ANTHROPIC.path: Writer(_message, _message_events),
}
"""By the path of a request."""
