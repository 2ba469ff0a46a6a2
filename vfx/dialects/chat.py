"""OpenAI chat completions: read a request and its answer for the trace, impose settings, write errors.

Lenient on purpose: a provider's unknown labels and vendor fields are kept or passed over, never refused.

Source: OpenAI API reference, "Chat Completions".
"""

import json
from collections.abc import Collection, Iterator
from typing import Any, cast

from vfx.dialects.fields import Json, as_count, as_object, as_text, given
from vfx.messages import Completion, Content, Message, Sampling, ToolCall, Usage

__all__ = [
    "ROUTE",
    "error_body",
    "impose",
    "read_completion",
    "read_message",
    "read_prompt",
    "read_sampling",
    "read_usage",
    "write_message",
]

ROUTE = "/v1/chat/completions"

_TEXT_FIELDS = ("tool_call_id", "name", "refusal")
# Which of the two names a provider uses for a model's thoughts differs; some send both.
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_READ_ALWAYS = frozenset({"role", "content", "tool_calls"})
_SAMPLING_FIELDS = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "n",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "seed",
        "stop",
        "temperature",
        "top_k",
        "top_logprobs",
        "top_p",
        "verbosity",
    }
)


def read_prompt(body: Json) -> list[Message]:
    """The messages of a request body.

    Raises:
        ValueError: `messages` is missing or holds something that is not a message; says where.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError(f"messages: expected a list of messages, got {type(messages).__name__}")  # noqa: TRY004
    return [read_message(raw, f"messages[{index}]", role=None) for index, raw in enumerate(cast("list[Any]", messages))]


def read_message(raw: Any, where: str = "message", *, role: str | None = "assistant") -> Message:
    """One message of a request or of an answer.

    Args:
        raw: As it was sent.
        where: Its place, for the error.
        role: What it has when it names none; None = it must name one.

    Raises:
        ValueError: It is not an object with a role, or its content is neither text nor parts.
    """
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: expected an object, got {type(raw).__name__}")  # noqa: TRY004
    fields = cast("dict[str, Any]", raw)
    named = fields.get("role") or role
    if not isinstance(named, str):
        raise ValueError(f"{where}.role: expected text, got {named!r:.80}")  # noqa: TRY004
    texts: dict[str, str] = {}
    extra: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _READ_ALWAYS or value is None:
            continue
        if isinstance(value, str) and (name in _TEXT_FIELDS or name in _REASONING_FIELDS):
            texts[name] = value
        else:
            extra[name] = value
    return Message(
        role=named,
        content=_read_content(fields.get("content"), where),
        tool_calls=tuple(_read_tool_calls(fields.get("tool_calls"))),
        tool_call_id=texts.get("tool_call_id"),
        name=texts.get("name"),
        reasoning=next((texts[name] for name in _REASONING_FIELDS if texts.get(name)), None),
        refusal=texts.get("refusal"),
        extra=extra,
    )


def _read_content(raw: Any, where: str) -> Content:
    if raw is None or isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise ValueError(f"{where}.content: expected text or a list of parts, got {type(raw).__name__}")  # noqa: TRY004
    parts = cast("list[Any]", raw)
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            raise ValueError(f"{where}.content[{index}]: expected an object, got {type(part).__name__}")  # noqa: TRY004
    return parts


def _read_tool_calls(raw: Any) -> Iterator[ToolCall]:
    for call in cast("list[Any]", raw) if isinstance(raw, list) else ():
        if not isinstance(call, dict):
            continue
        fields = cast("dict[str, Any]", call)
        kind = str(fields.get("type") or ("custom" if "custom" in fields else "function"))
        what = as_object(fields.get(kind) or fields.get("function"))
        text = what.get("input") if kind == "custom" else what.get("arguments")
        arguments = text if isinstance(text, str) else "" if text is None else json.dumps(text)
        yield ToolCall(str(fields.get("id") or ""), str(what.get("name") or ""), arguments, kind)


def read_completion(body: Json) -> Completion:
    """What a complete answer holds.

    Raises:
        ValueError: It has no choices, or one of them holds no message.
    """
    choices: Any = body.get("choices")
    if not isinstance(choices, list) or not choices:
        kind = type(cast("object", choices)).__name__
        raise ValueError(f"choices: expected at least one, got {'none' if not choices else kind}")
    listed = [as_object(choice) for choice in cast("list[Any]", choices)]
    return Completion(
        messages=tuple(read_message(choice.get("message"), f"choices[{n}].message") for n, choice in enumerate(listed)),
        finish_reasons=tuple(as_text(choice.get("finish_reason")) for choice in listed),
        usage=read_usage(body.get("usage")),
        model=as_text(body.get("model")),
        id=as_text(body.get("id")),
    )


def read_usage(raw: Any) -> Usage:
    """The tokens of a `usage` object; what it does not tell stays None."""
    usage = as_object(raw)
    return Usage(
        input_tokens=as_count(usage.get("prompt_tokens")),
        output_tokens=as_count(usage.get("completion_tokens")),
        cached_tokens=as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens")),
        reasoning_tokens=as_count(as_object(usage.get("completion_tokens_details")).get("reasoning_tokens")),
    )


def read_sampling(body: Json, also: Collection[str] = ()) -> dict[str, Any]:
    """The sampling settings that a request carries; `also` names keys which this module does not know as such."""
    return given(body, _SAMPLING_FIELDS.union(also) - {"model"})


def write_message(message: Message) -> dict[str, Any]:
    """A message in the form that a request body carries."""
    raw: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        raw["tool_calls"] = [
            {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
            if call.type == "custom"
            else {"id": call.id, "type": call.type, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    optional = {"tool_call_id": message.tool_call_id, "name": message.name, "refusal": message.refusal}
    return raw | {name: value for name, value in optional.items() if value is not None} | dict(message.extra)


def impose(body: Json, model: str, sampling: Sampling) -> dict[str, Any]:
    """`body` with the eval's model and sampling in place of the program's own; everything else and the order stay."""
    imposed: dict[str, Any] = {"model": model} | sampling.extra
    for name in ("temperature", "top_p", "seed"):
        if (value := getattr(sampling, name)) is not None:
            imposed[name] = value
    if sampling.stop is not None:
        imposed["stop"] = list(sampling.stop)
    if sampling.max_tokens is not None:
        # Newer models refuse the older name; a program that knows the newer one tells which its model wants.
        newer = "max_completion_tokens" in body
        imposed["max_completion_tokens" if newer else "max_tokens"] = sampling.max_tokens
    return {**body, **imposed}


def error_body(message: str, *, type: str, code: str | None = None) -> bytes:
    """An error as the dialect's SDKs expect it."""
    return json.dumps({"error": {"message": message, "type": type, "param": None, "code": code}}).encode()
