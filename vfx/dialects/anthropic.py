"""Anthropic Messages: read a request and its answer for the trace, impose settings, write errors.

`tool_use` blocks are tool calls, `tool_result` blocks messages of role `tool`, thoughts the message's reasoning; their
signatures and redacted thoughts are its opaque state. All other blocks are the content: images, documents, and what a
model did with tools of the provider's own, as the dialect gives them.

Source: Anthropic API reference, "Messages".
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from vfx.dialects.fields import Json, as_count, as_list, as_object, as_text, error_words, given
from vfx.messages import Completion, Content, Message, Sampling, ToolCall, Usage

__all__ = [
    "ROUTE",
    "error_body",
    "impose",
    "read_completion",
    "read_prompt",
    "read_sampling",
    "read_usage",
]

ROUTE = "/v1/messages"

# claude-code opens its system prompt with such a block and writes another one for every request.
_BILLING = "x-anthropic-billing-header:"
_SAMPLING_FIELDS = frozenset(
    {"max_tokens", "output_config", "stop_sequences", "temperature", "thinking", "top_k", "top_p"}
)
# What the interception says in the terms of OpenAI.
_ERROR_TYPES = {"provider_error": "api_error", "server_error": "api_error"}


def read_prompt(body: Json) -> list[Message]:
    """The messages of a request body, its system prompt first.

    Raises:
        ValueError: `messages` is missing or holds something that is not a message; says where.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError(f"messages: expected a list of messages, got {type(messages).__name__}")  # noqa: TRY004
    prompt = [*_read_system(body.get("system"))]
    for index, raw in enumerate(as_list(messages)):
        where = f"messages[{index}]"
        if not isinstance(raw, dict):
            raise ValueError(f"{where}: expected an object, got {type(raw).__name__}")  # noqa: TRY004
        fields = as_object(raw)
        role = fields.get("role")
        if not isinstance(role, str):
            raise ValueError(f"{where}.role: expected text, got {role!r:.80}")  # noqa: TRY004
        content = _read_blocks(fields.get("content"), f"{where}.content")
        rest = {name: value for name, value in fields.items() if name not in ("role", "content") and value is not None}
        prompt += [_read_answer(content, rest)] if role == "assistant" else _read_turn(role, content, rest)
    return prompt


def _read_system(raw: Any) -> list[Message]:
    if not raw:
        return []
    blocks = _read_blocks(raw, "system")
    billing = [block["text"] for block in blocks if str(block.get("text") or "").startswith(_BILLING)]
    kept = [block for block in blocks if block.get("text") not in billing]
    return [Message("system", _simplest(kept), extra={"billing": billing} if billing else {})]


def _read_blocks(raw: Any, where: str) -> list[dict[str, Any]]:
    """Content as blocks, of which a plain text is one."""
    if raw is None or raw == "":
        return []
    if isinstance(raw, str):
        return [{"type": "text", "text": raw}]
    if not isinstance(raw, list):
        raise ValueError(f"{where}: expected text or a list of blocks, got {type(raw).__name__}")  # noqa: TRY004
    for index, block in enumerate(as_list(raw)):
        if not isinstance(block, dict):
            raise ValueError(f"{where}[{index}]: expected an object, got {type(block).__name__}")  # noqa: TRY004
    return as_list(raw)


def _read_turn(role: str, blocks: Sequence[dict[str, Any]], rest: dict[str, Any]) -> list[Message]:
    """The results of tools and what stands between them, in their order."""
    read: list[Message] = []
    others: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            others.append(block)
            continue
        if others:
            read.append(Message(role, _simplest(others), extra=rest))
            others = []
        read.append(_read_result(block, f"tool_result[{index}].content"))
    if others or not read:
        read.append(Message(role, _simplest(others), extra=rest))
    return read


def _read_result(block: dict[str, Any], where: str) -> Message:
    known = ("type", "tool_use_id", "content", "cache_control")
    extra = {name: value for name, value in block.items() if name not in known and value is not None}
    content = _simplest(_read_blocks(block.get("content"), where))
    return Message("tool", content, tool_call_id=as_text(block.get("tool_use_id")), extra=extra)


def _read_answer(blocks: Sequence[dict[str, Any]], rest: dict[str, Any]) -> Message:
    parts: list[dict[str, Any]] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    opaque: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            calls.append(_read_call(block))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
            if block.get("signature"):
                opaque.append({"type": kind, "signature": block["signature"]})
        elif kind == "redacted_thinking":
            opaque.append({"type": kind, "data": block.get("data")})
        else:
            parts.append(block)
    reasoning = "\n\n".join(filter(None, thoughts)) or None
    return Message("assistant", _simplest(parts), tuple(calls), reasoning=reasoning, extra=rest, opaque=opaque)


def _read_call(block: dict[str, Any]) -> ToolCall:
    raw = block.get("input")
    # A stream's arguments come as the text that the model wrote.
    arguments = raw if isinstance(raw, str) else json.dumps({} if raw is None else raw, ensure_ascii=False)
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments)


def _simplest(blocks: Sequence[dict[str, Any]]) -> Content:
    """The text, when that is all there is but for a cache marker."""
    if not blocks:
        return None
    (first, *others) = blocks
    if not others and first.get("type") == "text" and isinstance(first.get("text"), str):
        more = any(value for name, value in first.items() if name not in ("type", "text", "cache_control"))
        return blocks if more else first["text"]
    return blocks


def read_completion(body: Json) -> Completion:
    """What a complete answer holds.

    Raises:
        ValueError: It has no content, or is an error.
    """
    if body.get("type") == "error" or body.get("error"):
        raise ValueError(f"it is an error: {error_words(body.get('error'))}")
    if body.get("content") is None:
        raise ValueError("content: there is none")
    return Completion(
        messages=(_read_answer(_read_blocks(body["content"], "content"), {}),),
        finish_reasons=(as_text(body.get("stop_reason")),),
        usage=read_usage(body.get("usage")),
        model=as_text(body.get("model")),
        id=as_text(body.get("id")),
    )


def read_usage(raw: Any) -> Usage:
    """The tokens of a `usage` object; what it does not tell stays None.

    Anthropic counts what it read from its cache and what it wrote to it apart from `input_tokens`; here they are part
    of the input, as with every other provider.
    """
    usage = as_object(raw)
    cached = as_count(usage.get("cache_read_input_tokens"))
    fresh = as_count(usage.get("input_tokens"))
    if fresh is not None:
        fresh += (cached or 0) + (as_count(usage.get("cache_creation_input_tokens")) or 0)
    return Usage(input_tokens=fresh, output_tokens=as_count(usage.get("output_tokens")), cached_tokens=cached)


def read_sampling(body: Json, also: Collection[str] = ()) -> dict[str, Any]:
    """The sampling settings that a request carries; `also` names keys which this module does not know as such."""
    return given(body, _SAMPLING_FIELDS.union(also) - {"model"})


def impose(body: Json, model: str, sampling: Sampling) -> dict[str, Any]:
    """`body` with the eval's model and sampling in place of the program's own; everything else and the order stay."""
    imposed: dict[str, Any] = {"model": model} | sampling.extra
    for name in ("temperature", "top_p", "max_tokens"):
        if (value := getattr(sampling, name)) is not None:
            imposed[name] = value
    if sampling.stop is not None:
        imposed["stop_sequences"] = list(sampling.stop)
    return {**body, **imposed}


def error_body(message: str, *, type: str, code: str | None = None) -> bytes:
    """An error as the dialect's SDKs expect it; they pass over the code."""
    error = {"type": _ERROR_TYPES.get(type, type), "message": message}
    return json.dumps({"type": "error", "error": error | ({"code": code} if code else {})}).encode()
