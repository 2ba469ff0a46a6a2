"""Writes an answer as a response of OpenAI's. Thoughts come first and tool calls last: the trace keeps no order."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from vfx.clients.answers.answer import RESPONSES_WORDS, Answer, Fields, Writer, finish_word, words
from vfx.messages import Message, ToolCall, Usage

__all__ = ["RESPONSES_WRITER"]

_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
# Of the calls of other tools all fields are arguments.
_NAMED_CALLS = ("function_call", "custom_tool_call")
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


def _whole(answer: Answer) -> Fields:
    word = finish_word(answer, 0, RESPONSES_WORDS)
    # Else the word says why the answer is incomplete.
    is_status = word in (None, "completed", "incomplete")
    return _begun(answer) | {
        "status": word if is_status else "incomplete",
        "incomplete_details": None if is_status else {"reason": word},
        "output": _items(answer),
        "usage": _usage(answer.completion.usage),
    }


def _begun(answer: Answer) -> Fields:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 0,
        "model": answer.completion.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _usage(usage: Usage) -> Fields | None:
    if usage == Usage():
        return None
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    fields: Fields = {name: count for name, count in counts.items() if count is not None}
    if usage.input_tokens is not None and usage.output_tokens is not None:
        fields["total_tokens"] = usage.input_tokens + usage.output_tokens
    if usage.cached_tokens is not None:
        fields["input_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        fields["output_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields


def _items(answer: Answer) -> list[Fields]:
    items = [*_output(answer.message)]
    return [
        {**item, "id": f"{_PREFIXES.get(item['type'], 'item')}_{answer.id}_{number}"}
        for number, item in enumerate(items)
    ]


def _output(message: Message) -> Iterator[Fields]:
    yield from _thoughts(message)
    # Which item had such a field is not kept; a program passes over one where it does not look for it.
    extra = dict(message.extra)
    said = [*_said(message, extra)]
    calls = [_call(call) for call in message.tool_calls]
    calls = [call | extra if call["type"] in _NAMED_CALLS else call for call in calls]
    if extra and not any(item["type"] in ("message", *_NAMED_CALLS) for item in (*said, *calls)):
        said.append(_message([], extra))
    yield from said
    yield from calls


def _thoughts(message: Message) -> Iterator[Fields]:
    """The thoughts with the first of the encrypted ones, since the trace holds them as one text."""
    summary = [{"type": "summary_text", "text": message.reasoning}] if message.reasoning else []
    encrypted = [state["encrypted_content"] for state in message.opaque if state.get("encrypted_content")]
    if summary and not encrypted:
        yield {"type": "reasoning", "summary": summary}
    for content in encrypted:
        yield {"type": "reasoning", "summary": summary, "encrypted_content": content}
        summary = []


def _said(message: Message, extra: Fields) -> Iterator[Fields]:
    """The messages, and between them what the model did with tools of the provider's own."""
    content, texts = message.content, list[Mapping[str, Any]]()
    if isinstance(content, str):
        texts.append({"type": "output_text", "text": content, "annotations": list[Any]()})
        content = None
    for part in content or ():
        if part.get("type") in _TEXT_PARTS:
            texts.append(part)
            continue
        if texts:
            yield _message(texts, extra)
            texts = []
        yield {"status": "completed", **part}
    if message.refusal:
        texts.append({"type": "refusal", "refusal": message.refusal})
    if texts:
        yield _message(texts, extra)


def _message(content: list[Mapping[str, Any]], extra: Fields) -> Fields:
    parts = [dict(part) for part in content]
    return {"type": "message", "role": "assistant", "status": "completed", "content": parts} | extra


def _call(call: ToolCall) -> Fields:
    common = {"call_id": call.id, "status": "completed"}
    if call.type == "custom":
        return {"type": "custom_tool_call", "name": call.name, "input": call.arguments} | common
    fields = None if call.type == "function" else _object(call.arguments)
    if fields is None:
        return {"type": "function_call", "name": call.name, "arguments": call.arguments} | common
    # A tool that has a kind of item of its own, whose fields are the arguments.
    named = {"name": call.name} if call.name != call.type else {}
    return {"type": f"{call.type}_call"} | fields | named | common


def _object(text: str) -> Fields | None:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Fields", value) if isinstance(value, dict) else None


def _events(answer: Answer) -> list[Fields]:
    whole = _whole(answer)
    events: list[Fields] = [{"type": "response.created", "response": _begun(answer)}]
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty, parts = _opened(item, place)
        events.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        events += parts
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    kind = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    events.append({"type": kind, "response": whole})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _opened(item: Fields, place: Fields) -> tuple[Fields, list[Fields]]:
    """An item as it begins, and what is streamed of it. Items of the provider's own tools come at once."""
    kind = item["type"]
    if kind == "message":
        parts = [_part(part, {**place, "content_index": n}) for n, part in enumerate(item["content"])]
        return {**item, "status": "in_progress", "content": []}, [event for events in parts for event in events]
    if kind == "reasoning":
        parts = [_summary(part["text"], {**place, "summary_index": n}) for n, part in enumerate(item["summary"])]
        return {**item, "summary": []}, [event for events in parts for event in events]
    if kind in _NAMED_CALLS:
        name, field = (
            ("function_call_arguments", "arguments") if kind == "function_call" else (f"{kind}_input", "input")
        )
        return {**item, "status": "in_progress", field: ""}, _pieces(name, field, item[field], place)
    return item, []


def _part(part: Fields, place: Fields) -> list[Fields]:
    field = "refusal" if part["type"] == "refusal" else "text"
    name = "refusal" if field == "refusal" else "output_text"
    added: Fields = {"type": "response.content_part.added", "part": {**part, field: ""}} | place
    done: Fields = {"type": "response.content_part.done", "part": part} | place
    return [added, *_pieces(name, field, part[field], place), done]


def _summary(text: str, place: Fields) -> list[Fields]:
    part = {"type": "summary_text", "text": text}
    added: Fields = {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}} | place
    done: Fields = {"type": "response.reasoning_summary_part.done", "part": part} | place
    return [added, *_pieces("reasoning_summary_text", "text", text, place), done]


def _pieces(name: str, field: str, text: str, place: Fields) -> list[Fields]:
    deltas: list[Fields] = [{"type": f"response.{name}.delta", "delta": piece} | place for piece in words(text)]
    return [*deltas, {"type": f"response.{name}.done", field: text} | place]


RESPONSES_WRITER = Writer(_whole, _events)
