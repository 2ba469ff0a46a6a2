"""Puts messages that a task's intercept hooks have changed back into native bodies and streams, and nothing else.

Of a request the contents of tool results can change; of an answer its text, and tool calls can be left out.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfx.dialects.fields import Json, as_list, as_object, as_objects
from vfx.dialects.sse import Event, EventParser
from vfx.messages import Content, Message

__all__ = ["REWRITES", "Rewrites"]

Answers = Sequence[tuple[Message, Message]]
"""Each answer of the model, and what takes its place."""


@dataclass(frozen=True, slots=True)
class Rewrites:
    """How one dialect is written to. Bodies are not changed: what differs is a copy."""

    put_results: Callable[[Json, Mapping[str, Content]], dict[str, Any]]
    """A request in which the tool results of these calls, by their ids, have these contents."""
    put_answers: Callable[[Json, Answers], dict[str, Any]]
    """A whole answer with other messages."""
    put_events: Callable[[Sequence[Event], Answers], Iterator[Event]]
    """The events of a complete stream with other messages."""

    def put_stream(self, raw: bytes, answers: Answers) -> bytes:
        """A complete stream with other messages."""
        events = EventParser().feed(raw + b"\n\n")
        return b"".join(map(_encode, self.put_events(events, answers)))


def _encode(event: Event) -> bytes:
    head = "" if event.type == "message" else f"event: {event.type}\n"
    data = "\n".join(f"data: {line}" for line in event.data.split("\n"))
    return f"{head}{data}\n\n".encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _kept(before: Message, after: Message) -> list[bool]:
    """For each tool call of an answer whether it stays."""
    return [call in after.tool_calls for call in before.tool_calls]


def _left_out(before: Message, after: Message) -> set[str]:
    return {call.id for call in before.tool_calls} - {call.id for call in after.tool_calls}


# Chat completions


def _put_chat_results(body: Json, contents: Mapping[str, Content]) -> dict[str, Any]:
    def put(raw: Any) -> Any:
        fields = as_object(raw)
        if fields.get("role") == "tool" and (call := str(fields.get("tool_call_id"))) in contents:
            return {**fields, "content": contents[call]}
        return raw

    return {**body, "messages": [put(raw) for raw in as_list(body["messages"])]}


def _put_chat_answers(body: Json, answers: Answers) -> dict[str, Any]:
    def put(choice: dict[str, Any], before: Message, after: Message) -> dict[str, Any]:
        message = {**choice["message"]}
        if after.content != before.content:
            message["content"] = after.content
        if after.tool_calls != before.tool_calls:
            kept = _kept(before, after)
            message["tool_calls"] = [raw for raw, stays in zip(message["tool_calls"], kept, strict=False) if stays]
            if not after.tool_calls:
                del message["tool_calls"]
        return {**choice, "message": message, "finish_reason": _chat_reason(choice.get("finish_reason"), after)}

    pairs = zip(body["choices"], answers, strict=True)
    return {**body, "choices": [put(choice, *pair) if pair[0] is not pair[1] else choice for choice, pair in pairs]}


def _chat_reason(reason: Any, after: Message) -> Any:
    return "stop" if reason == "tool_calls" and not after.tool_calls else reason


class _ChatChoice:
    """One streamed choice that is being changed."""

    def __init__(self, before: Message, after: Message) -> None:
        self._after = after
        self._kept = _kept(before, after)
        self._has_new_text = after.content != before.content
        self._is_text_due = self._has_new_text
        self._calls: dict[Any, int | None] = {}
        """The new index of each call by its own; None = left out."""

    def put(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta = {**as_object(choice.get("delta"))}
        if "content" in delta and self._has_new_text:
            # The role comes with an empty text, which is no place for ours yet.
            if delta["content"] and self._is_text_due:
                delta["content"] = self._text()
            elif delta["content"]:
                del delta["content"]
        if "tool_calls" in delta:
            delta["tool_calls"] = list(self._put_calls(delta["tool_calls"]))
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        if choice.get("finish_reason") and self._is_text_due:
            delta["content"] = self._text()
        return {**choice, "delta": delta, "finish_reason": _chat_reason(choice.get("finish_reason"), self._after)}

    def _text(self) -> str:
        self._is_text_due = False
        return self._after.text

    def _put_calls(self, parts: Any) -> Iterator[dict[str, Any]]:
        for part in as_objects(parts):
            index = part.get("index", len(self._calls))
            if index not in self._calls:
                number = len(self._calls)
                stays = number < len(self._kept) and self._kept[number]
                self._calls[index] = sum(place is not None for place in self._calls.values()) if stays else None
            if (place := self._calls[index]) is not None:
                yield {**part, "index": place}


def _put_chat_events(events: Sequence[Event], answers: Answers) -> Iterator[Event]:
    choices = {n: _ChatChoice(*pair) for n, pair in enumerate(answers) if pair[0] is not pair[1]}
    for event in events:
        data = event.data.strip()
        fields = as_object(json.loads(data)) if data.startswith("{") else {}
        if raw_choices := as_objects(fields.get("choices")):
            changed = [(choices.get(raw.get("index", 0)), raw) for raw in raw_choices]
            fields["choices"] = [choice.put(raw) if choice else raw for choice, raw in changed]
            yield Event(_dumps(fields), event.type)
        else:
            yield event


# Anthropic messages


def _put_claude_results(body: Json, contents: Mapping[str, Content]) -> dict[str, Any]:
    def put_block(block: Any) -> Any:
        fields = as_object(block)
        if fields.get("type") == "tool_result" and (call := str(fields.get("tool_use_id"))) in contents:
            return {**fields, "content": contents[call]}
        return block

    def put(raw: dict[str, Any]) -> dict[str, Any]:
        content = raw.get("content")
        return {**raw, "content": [put_block(block) for block in as_list(content)]} if as_list(content) else raw

    return {**body, "messages": [put(raw) for raw in as_objects(body["messages"])]}


def _claude_reason(reason: Any, after: Message) -> Any:
    return "end_turn" if reason == "tool_use" and not after.tool_calls else reason


def _put_claude_answers(body: Json, answers: Answers) -> dict[str, Any]:
    before, after = answers[0]
    left_out, blocks = _left_out(before, after), list[dict[str, Any]]()
    is_text_due = has_new_text = after.text != before.text
    for block in as_objects(body.get("content")):
        if block.get("type") == "text" and has_new_text:
            if is_text_due and after.text:
                blocks.append({"type": "text", "text": after.text})
            is_text_due = False
        elif block.get("id") not in left_out:
            blocks.append(block)
    if is_text_due and after.text:
        blocks.append({"type": "text", "text": after.text})
    return {**body, "content": blocks, "stop_reason": _claude_reason(body.get("stop_reason"), after)}


def _put_claude_events(events: Sequence[Event], answers: Answers) -> Iterator[Event]:
    before, after = answers[0]
    left_out, has_new_text = _left_out(before, after), after.text != before.text
    is_text_due = has_new_text and bool(after.text)
    places: dict[Any, int] = {}
    count = 0
    for event in events:
        fields = json.loads(event.data)
        kind, index = fields.get("type"), fields.get("index")
        if kind == "content_block_start":
            block = fields["content_block"]
            if (block.get("type") == "text" and has_new_text) or block.get("id") in left_out:
                if block.get("type") == "text" and is_text_due:
                    yield from _claude_text(count, after.text)
                    count, is_text_due = count + 1, False
                continue
            places[index], count = count, count + 1
        elif kind == "message_delta":
            if is_text_due:
                yield from _claude_text(count, after.text)
                is_text_due = False
            delta = fields["delta"]
            fields["delta"] = {**delta, "stop_reason": _claude_reason(delta.get("stop_reason"), after)}
        if index is not None:
            if index not in places:
                continue
            fields["index"] = places[index]
        yield Event(_dumps(fields), event.type)


def _claude_text(index: int, text: str) -> Iterator[Event]:
    start = {"content_block": {"type": "text", "text": ""}}
    for kind, rest in (
        ("content_block_start", start),
        ("content_block_delta", {"delta": {"type": "text_delta", "text": text}}),
        ("content_block_stop", {}),
    ):
        yield Event(_dumps({"type": kind, "index": index, **rest}), kind)


# OpenAI responses


def _put_responses_results(body: Json, contents: Mapping[str, Content]) -> dict[str, Any]:
    def put(raw: Any) -> Any:
        fields = as_object(raw)
        if str(fields.get("type")).endswith("_output") and (call := str(fields.get("call_id"))) in contents:
            return {**fields, "output": contents[call]}
        return raw

    return {**body, "input": [put(raw) for raw in as_list(body["input"])]}


def _put_responses_answers(body: Json, answers: Answers) -> dict[str, Any]:
    before, after = answers[0]
    left_out, items = _left_out(before, after), list[dict[str, Any]]()
    is_text_due = has_new_text = after.text != before.text
    for item in as_objects(body.get("output")):
        if item.get("type") == "message" and has_new_text:
            if is_text_due and after.text:
                items.append({**item, "content": [_output_text(after.text)]})
            is_text_due = False
        elif item.get("call_id") not in left_out:
            items.append(item)
    if is_text_due and after.text:
        fields = {"type": "message", "id": "msg_rewritten", "role": "assistant", "status": "completed"}
        items.append({**fields, "content": [_output_text(after.text)]})
    return {**body, "output": items}


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _put_responses_events(events: Sequence[Event], answers: Answers) -> Iterator[Event]:
    """The last event holds the whole answer: from it the events of the items are written anew."""
    all_fields = [json.loads(event.data) for event in events if event.data.strip().startswith("{")]
    opening = [fields for fields in all_fields if fields.get("type") in ("response.created", "response.in_progress")]
    last = all_fields[-1]
    body = _put_responses_answers(last["response"], answers)
    written = list(opening)
    for index, item in enumerate(body["output"]):
        empty: dict[str, Any] = {**item, "status": "in_progress"} | ({"content": []} if "content" in item else {})
        written.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        written += _item_events(item, {"item_id": item.get("id"), "output_index": index})
        written.append({"type": "response.output_item.done", "output_index": index, "item": item})
    written.append({**last, "response": body})
    for number, fields in enumerate(written):
        yield Event(_dumps({**fields, "sequence_number": number}), fields["type"])


def _item_events(item: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item.get("type") == "function_call":
        text = item.get("arguments", "")
        yield {"type": "response.function_call_arguments.delta", **where, "delta": text}
        yield {"type": "response.function_call_arguments.done", **where, "arguments": text}
    for index, part in enumerate(as_objects(item.get("content")) if item.get("type") == "message" else ()):
        place = {**where, "content_index": index}
        yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
        if part.get("type") == "output_text":
            yield {"type": "response.output_text.delta", **place, "delta": part["text"]}
            yield {"type": "response.output_text.done", **place, "text": part["text"]}
        yield {"type": "response.content_part.done", **place, "part": part}


REWRITES: Mapping[str, Rewrites] = {
    "/v1/chat/completions": Rewrites(_put_chat_results, _put_chat_answers, _put_chat_events),
    "/v1/messages": Rewrites(_put_claude_results, _put_claude_answers, _put_claude_events),
    "/v1/responses": Rewrites(_put_responses_results, _put_responses_answers, _put_responses_events),
}
"""By the route of the dialect."""
