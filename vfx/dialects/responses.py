"""OpenAI Responses: read a request and its answer for the trace, impose settings.

All output items of one answer are one message, and adjacent items of a model's making in an input are too: so an answer
is the same message when a program sends it back. Ids and statuses of items are not kept, since programs send them back
or don't. What a model did with tools of the provider's own is among the content, as the items tell it.

Source: OpenAI API reference, "Responses".
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vfx.dialects.base import Earlier
from vfx.dialects.fields import (
    Json,
    as_count,
    as_list,
    as_object,
    as_objects,
    as_text,
    error_words,
    given,
    require_object,
)
from vfx.messages import Completion, Content, Message, Sampling, ToolCall, Usage

__all__ = [
    "ROUTE",
    "extend",
    "impose",
    "read_answer",
    "read_completion",
    "read_earlier",
    "read_prompt",
    "read_response",
    "read_sampling",
    "read_usage",
    "resolve",
]

ROUTE = "/v1/responses"

# What programs answer to calls; other outputs are of the provider's own tools.
_RESULTS = frozenset(
    {
        "apply_patch_call_output",
        "computer_call_output",
        "custom_tool_call_output",
        "function_call_output",
        "local_shell_call_output",
        "shell_call_output",
    }
)
# Of the calls of other tools all fields are arguments.
_NAMED_CALLS = frozenset({"custom_tool_call", "function_call"})
_NOT_KEPT = frozenset({"id", "status", "type", "role"})
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_SAMPLING_FIELDS = frozenset(
    {
        "frequency_penalty",
        "max_output_tokens",
        "max_tool_calls",
        "min_p",
        "presence_penalty",
        "reasoning",
        "repetition_penalty",
        "seed",
        "stop",
        "temperature",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)
_INSTRUCTIONS = {"field": "instructions"}


def read_prompt(body: Json) -> list[Message]:
    """The messages of a request body: its instructions as a system message, then its input.

    Raises:
        ValueError: `input` is missing or holds something that is not an item; says where.
    """
    instructions, items = body.get("instructions"), body.get("input")
    prompt: list[Message] = []
    if instructions:
        prompt.append(Message("system", _read_content(instructions, "instructions"), extra=dict(_INSTRUCTIONS)))
    if isinstance(items, str):
        prompt.append(Message("user", items))
    elif isinstance(items, list):
        prompt += _Input().read(as_list(items))
    elif items is not None or not (body.get("prompt") or read_earlier(body)):
        raise ValueError(f"input: expected text or a list of items, got {type(items).__name__}")
    return prompt


class _Input:
    """Reads items in their order; those that the model made are gathered until one comes that it did not."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: _Answer | None = None

    def read(self, items: Sequence[Any]) -> list[Message]:
        for index, raw in enumerate(items):
            where = f"input[{index}]"
            if not isinstance(raw, dict):
                raise ValueError(f"{where}: expected an object, got {type(raw).__name__}")  # noqa: TRY004
            self._take(as_object(raw), where)
        self._end_answer()
        return self._messages

    def _take(self, item: dict[str, Any], where: str) -> None:
        message = _read_from_program(item, where)
        if message is not None:
            self._end_answer()
            self._messages.append(message)
            return
        if self._answer is None:
            self._answer = _Answer()
        self._answer.add(item, where)

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._messages.append(self._answer.build())
            self._answer = None


def _read_from_program(item: dict[str, Any], where: str) -> Message | None:
    """The message that an item of an input is; None for one that the model made."""
    kind = as_text(item.get("type"))
    if kind in _RESULTS or (kind == "tool_search_output" and item.get("execution") == "client"):
        content = _read_content(item.get("output", item.get("tools")), f"{where}.output")
        rest = _rest(item, "call_id", "output", "tools")
        return Message("tool", content, tool_call_id=as_text(item.get("call_id")), extra=rest)
    if kind == "mcp_approval_response":
        return Message("tool", [item], tool_call_id=as_text(item.get("approval_request_id")))
    if kind not in (None, "message"):
        return None
    role = item.get("role")
    if not isinstance(role, str):
        raise ValueError(f"{where}.role: expected text, got {role!r:.80}")  # noqa: TRY004
    if role == "assistant":
        return None
    return Message(role, _read_content(item.get("content"), f"{where}.content"), extra=_rest(item, "content"))


class _Answer:
    """One assistant message, from the items that a model made."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._calls: list[ToolCall] = []
        self._thoughts: list[str] = []
        self._refusals: list[str] = []
        self._opaque: list[dict[str, Any]] = []
        self._extra: dict[str, Any] = {}

    def add(self, item: dict[str, Any], where: str) -> None:
        kind = as_text(item.get("type")) or "message"
        if kind == "message":
            self._add_message(item, where)
        elif kind == "reasoning":
            self._add_thoughts(item)
        elif item.get("call_id") and not str(kind).endswith("_output"):
            self._calls.append(_read_call(item, str(kind)))
            if kind in _NAMED_CALLS:
                self._extra |= _rest(item, "call_id", "name", "arguments", "input")
        else:
            # Without the id, which a program may leave out when it sends it back; a reference is nothing but its id.
            self._parts.append(item if kind == "item_reference" else _rest(item) | {"type": kind})

    def _add_message(self, item: dict[str, Any], where: str) -> None:
        content = _read_content(item.get("content"), f"{where}.content")
        for part in [{"type": "output_text", "text": content}] if isinstance(content, str) else content or ():
            if part.get("type") == "refusal":
                self._refusals.append(str(part.get("refusal") or ""))
            else:
                self._parts.append(dict(part))
        self._extra |= _rest(item, "content")

    def _add_thoughts(self, item: dict[str, Any]) -> None:
        # The thoughts themselves where the provider gives them, else what it says about them.
        told = as_objects(item.get("content")) or as_objects(item.get("summary"))
        self._thoughts += [str(part["text"]) for part in told if isinstance(part.get("text"), str)]
        if item.get("encrypted_content"):
            self._opaque.append({"type": "reasoning", "encrypted_content": item["encrypted_content"]})
        self._extra |= _rest(item, "content", "summary", "encrypted_content")

    def build(self) -> Message:
        return Message(
            "assistant",
            _simplest(self._parts),
            tuple(self._calls),
            reasoning="\n\n".join(filter(None, self._thoughts)) or None,
            refusal="".join(self._refusals) or None,
            extra=self._extra,
            opaque=tuple(self._opaque),
        )


def _read_call(item: dict[str, Any], kind: str) -> ToolCall:
    call_id, name = str(item.get("call_id")), as_text(item.get("name"))
    if kind == "custom_tool_call":
        return ToolCall(call_id, name or "", _as_arguments(item.get("input")), "custom")
    if kind == "function_call":
        return ToolCall(call_id, name or "", _as_arguments(item.get("arguments")))
    what = kind.removesuffix("_call")
    return ToolCall(call_id, name or what, json.dumps(_rest(item, "call_id", "name"), ensure_ascii=False), what)


def _as_arguments(raw: Any) -> str:
    return raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)


def _rest(item: Json, *read: str) -> dict[str, Any]:
    return {
        name: value for name, value in item.items() if name not in _NOT_KEPT and name not in read and value is not None
    }


def _read_content(raw: Any, where: str) -> Content:
    if raw is None or isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise ValueError(f"{where}: expected text or a list of parts, got {type(raw).__name__}")  # noqa: TRY004
    parts = as_list(raw)
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            raise ValueError(f"{where}[{index}]: expected an object, got {type(part).__name__}")  # noqa: TRY004
    return _simplest(parts)


def _simplest(parts: Sequence[dict[str, Any]]) -> Content:
    """The text, when that is all there is."""
    if not parts:
        return None
    if len(parts) == 1 and _is_plain_text(parts[0]):
        return parts[0]["text"]
    return parts


def _is_plain_text(part: Json) -> bool:
    is_text = as_text(part.get("type")) in _TEXT_PARTS and isinstance(part.get("text"), str)
    return is_text and not any(value for name, value in part.items() if name not in ("type", "text"))


def read_completion(body: Json) -> Completion:
    """What a complete answer holds.

    Raises:
        ValueError: It has no output, has failed, or is still being made.
    """
    status = body.get("status")
    if status in ("failed", "cancelled"):
        raise ValueError(f"status: it {'has failed' if status == 'failed' else 'was cancelled'}: {_failure(body)}")
    if status in ("queued", "in_progress"):
        raise ValueError(f"status: it is {status!r}, and answers made in the background are not followed")
    if not isinstance(body.get("output"), list):
        raise ValueError(f"output: expected a list of items, got {type(body.get('output')).__name__}")  # noqa: TRY004
    return read_response(body)


def read_response(body: Json) -> Completion:
    """What an answer holds, finished or not.

    Raises:
        ValueError: One of its items is none.
    """
    return Completion(
        messages=(read_answer(as_list(body.get("output"))),),
        finish_reasons=(_finish_reason(body),),
        usage=read_usage(body.get("usage")),
        model=as_text(body.get("model")),
        id=as_text(body.get("id")),
        items={item["id"]: item for item in as_objects(body.get("output")) if isinstance(item.get("id"), str)},
    )


def read_answer(items: Sequence[Any]) -> Message:
    """The message that the output items of an answer make.

    Raises:
        ValueError: One of them is no item.
    """
    answer = _Answer()
    for index, raw in enumerate(items):
        answer.add(require_object(raw, f"output[{index}]"), f"output[{index}]")
    return answer.build()


def _finish_reason(body: Json) -> str | None:
    """In the provider's words: why an answer is incomplete, else its status."""
    status = as_text(body.get("status"))
    return as_text(as_object(body.get("incomplete_details")).get("reason")) or status


def _failure(body: Json) -> str:
    return error_words(body["error"]) if body.get("error") else "it does not say why"


def read_usage(raw: Any) -> Usage:
    """The tokens of a `usage` object; what it does not tell stays None."""
    usage = as_object(raw)
    return Usage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cached_tokens=as_count(as_object(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning_tokens=as_count(as_object(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )


def read_earlier(body: Json) -> Earlier | None:
    """The response or the conversation at the provider that a request goes on from."""
    previous = as_text(body.get("previous_response_id"))
    if previous is not None:
        return Earlier(previous, is_growing=False)
    raw = body.get("conversation")
    conversation = as_text(raw) or as_text(as_object(raw).get("id"))
    return None if conversation is None else Earlier(conversation, is_growing=True)


def resolve(body: Json, kept: Mapping[str, Json]) -> Json:
    """A request in which references to items are those items, where they are known."""
    items = as_list(body.get("input"))
    if not any(as_object(item).get("type") == "item_reference" for item in items):
        return body
    return {**body, "input": [_resolve_item(item, kept) for item in items]}


def _resolve_item(item: Any, kept: Mapping[str, Json]) -> Any:
    fields = as_object(item)
    # The type may be left out of a reference, too, but then nothing tells it from a message without a role.
    return kept.get(str(fields.get("id")), item) if fields.get("type") == "item_reference" else item


def extend(earlier: Sequence[Message], prompt: Sequence[Message]) -> list[Message]:
    """What the model sees: instructions hold for one request only, so the earlier ones are not among it."""
    own = 1 if prompt and _is_instructions(prompt[0]) else 0
    kept = [message for message in earlier if not _is_instructions(message)]
    return [*prompt[:own], *kept, *prompt[own:]]


def _is_instructions(message: Message) -> bool:
    return message.extra == _INSTRUCTIONS


def read_sampling(body: Json, also: Collection[str] = ()) -> dict[str, Any]:
    """The sampling settings that a request carries; `also` names keys which this module does not know as such."""
    return given(body, _SAMPLING_FIELDS.union(also) - {"model"})


def impose(body: Json, model: str, sampling: Sampling) -> dict[str, Any]:
    """`body` with the eval's model and sampling in place of the program's own; everything else and the order stay."""
    imposed: dict[str, Any] = {"model": model} | sampling.extra
    for name, key in (("temperature", "temperature"), ("top_p", "top_p"), ("max_tokens", "max_output_tokens")):
        if (value := getattr(sampling, name)) is not None:
            imposed[key] = value
    return {**body, **imposed}
