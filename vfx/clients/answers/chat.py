"""Writes an answer as a chat completion."""

from collections.abc import Iterator
from typing import Any

from vfx.clients.answers.answer import CHAT_WORDS, Answer, Fields, Writer, finish_word, words
from vfx.dialects.chat import write_message
from vfx.messages import Message, ToolCall, Usage

__all__ = ["CHAT_WRITER"]


def _whole(answer: Answer) -> Fields:
    choices = [
        {"index": number, "message": _message(message), "finish_reason": finish_word(answer, number, CHAT_WORDS)}
        for number, message in enumerate(answer.completion.messages)
    ]
    return _common(answer, "chat.completion") | {"choices": choices, "usage": _usage(answer.completion.usage)}


def _common(answer: Answer, kind: str) -> Fields:
    return {"id": f"chatcmpl-{answer.id}", "created": 0, "model": answer.completion.model, "object": kind}


def _message(message: Message) -> Fields:
    return write_message(message) | _thoughts(message.reasoning)


def _thoughts(text: str | None) -> Fields:
    # Programs look for either name, by the provider that they were made for.
    return {"reasoning_content": text, "reasoning": text} if text else {}


def _usage(usage: Usage) -> Fields | None:
    if usage == Usage():
        return None
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    fields: Fields = {name: count for name, count in counts.items() if count is not None}
    if usage.input_tokens is not None and usage.output_tokens is not None:
        fields["total_tokens"] = usage.input_tokens + usage.output_tokens
    if usage.cached_tokens is not None:
        fields["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields


def _events(answer: Answer) -> list[Fields]:
    completion, events = answer.completion, list[Fields]()
    for number, message in enumerate(completion.messages):
        for delta in _deltas(message):
            events.append({"choices": [{"index": number, "delta": delta, "finish_reason": None}]})
        end = {"index": number, "delta": dict[str, Any](), "finish_reason": finish_word(answer, number, CHAT_WORDS)}
        events.append({"choices": [end]})
    usage = _usage(completion.usage)
    if usage is not None and answer.usage_in_stream == "event":
        events.append({"choices": [], "usage": usage})
    elif usage is not None and answer.usage_in_stream == "last":
        # A program that did not ask may well trip over an event without a choice.
        events[-1]["usage"] = usage
    return [_common(answer, "chat.completion.chunk") | event for event in events]


def _deltas(message: Message) -> Iterator[Fields]:
    content = message.content
    yield {"role": message.role} | ({"content": ""} if isinstance(content, str) else {})
    for piece in words(message.reasoning) if message.reasoning else ():
        yield _thoughts(piece)
    if isinstance(content, str):
        yield from ({"content": piece} for piece in words(content))
    elif content is not None:
        yield {"content": list(content)}
    rest = {"refusal": message.refusal, "name": message.name, "tool_call_id": message.tool_call_id, **message.extra}
    if given := {name: value for name, value in rest.items() if value is not None}:
        yield given
    for index, call in enumerate(message.tool_calls):
        yield from ({"tool_calls": [{"index": index, **part}]} for part in _call_parts(call))


def _call_parts(call: ToolCall) -> Iterator[Fields]:
    inner, name = ("custom", "input") if call.type == "custom" else ("function", "arguments")
    yield {"id": call.id, "type": call.type, inner: {"name": call.name, name: ""}}
    yield from ({inner: {name: piece}} for piece in words(call.arguments))


CHAT_WRITER = Writer(_whole, _events, is_typed=False)
