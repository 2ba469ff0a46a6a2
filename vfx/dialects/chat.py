"""OpenAI chat completions: read a request and its answer for the trace, impose settings, write errors.

Lenient on purpose: a provider's unknown labels and vendor fields are kept or passed over, never refused.

Source: OpenAI API reference, "Chat Completions" and "Streaming".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from vfx.dialects.sse import EventParser
from vfx.messages import Completion, Message, Sampling, ToolCall, Usage

__all__ = [
    "ROUTE",
    "StreamAssembler",
    "error_body",
    "impose",
    "is_context_overflow",
    "read_completion",
    "read_prompt",
    "write_message",
]

ROUTE = "/v1/chat/completions"

_KNOWN_MESSAGE_FIELDS = frozenset(
    {
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "name",
        "reasoning",
        "reasoning_content",
        "refusal",
    }
)
# What llama.cpp, vLLM, SGLang, OpenAI and their gateways say when a prompt is longer than the model's context.
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_PHRASES = ("maximum context length", "context length exceeded", "exceeds the available context size")

Json = Mapping[str, Any]


def read_prompt(body: Json) -> list[Message]:
    """The messages of a request body.

    Raises:
        ValueError: `messages` is missing or holds something that is not a message; says where.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise ValueError(f"messages: expected a list of messages, got {type(messages).__name__}")  # noqa: TRY004
    return [read_message(raw, f"messages[{index}]") for index, raw in enumerate(cast("list[Any]", messages))]


def read_message(raw: Any, where: str = "message") -> Message:
    """One message of a request or of an answer.

    Raises:
        ValueError: It is not an object with a role.
    """
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: expected an object, got {type(raw).__name__}")  # noqa: TRY004
    fields = cast("dict[str, Any]", raw)
    role = fields.get("role", "assistant")
    if not isinstance(role, str):
        raise ValueError(f"{where}.role: expected text, got {role!r:.80}")  # noqa: TRY004
    return Message(
        role=role,
        content=fields.get("content"),
        tool_calls=tuple(_read_tool_calls(fields.get("tool_calls"))),
        tool_call_id=fields.get("tool_call_id"),
        name=fields.get("name"),
        reasoning=fields.get("reasoning_content") or fields.get("reasoning"),
        refusal=fields.get("refusal"),
        extra={name: value for name, value in fields.items() if name not in _KNOWN_MESSAGE_FIELDS and value},
    )


def _read_tool_calls(raw: Any) -> Iterator[ToolCall]:
    for call in cast("Sequence[Any]", raw or ()):
        if not isinstance(call, dict):
            continue
        fields = cast("dict[str, Any]", call)
        kind = fields.get("type") or ("custom" if "custom" in fields else "function")
        what: dict[str, Any] = fields.get(kind) or fields.get("function") or {}
        text = what.get("input") if kind == "custom" else what.get("arguments")
        arguments = text if isinstance(text, str) else "" if text is None else json.dumps(text)
        yield ToolCall(str(fields.get("id") or ""), str(what.get("name") or ""), arguments, str(kind))


def read_completion(body: Json) -> Completion:
    """What a complete answer holds.

    Raises:
        ValueError: It has no choices.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError(f"choices: expected at least one, got {json.dumps(choices)[:80]}")
    listed = cast("list[dict[str, Any]]", choices)
    return Completion(
        messages=tuple(read_message(choice.get("message"), f"choices[{n}].message") for n, choice in enumerate(listed)),
        finish_reasons=tuple(choice.get("finish_reason") for choice in listed),
        usage=_read_usage(body.get("usage")),
        model=body.get("model"),
        id=body.get("id"),
    )


def _read_usage(raw: Any) -> Usage:
    if not isinstance(raw, dict):
        return Usage()
    usage = cast("dict[str, Any]", raw)
    prompt_details: Json = usage.get("prompt_tokens_details") or {}
    completion_details: Json = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(prompt_details.get("cached_tokens")),
        reasoning_tokens=_count(completion_details.get("reasoning_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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


def is_context_overflow(status: int, body: bytes) -> bool:
    """True when a provider refused because the prompt is longer than the model's context."""
    if status not in (400, 413):
        return False
    text = body[:65536].decode("utf-8", "replace").lower()
    return any(f'"{code}"' in text for code in _OVERFLOW_CODES) or any(phrase in text for phrase in _OVERFLOW_PHRASES)


@dataclass(slots=True)
class _Choice:
    message: dict[str, Any] = field(default_factory=dict[str, Any])
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    finish_reason: str | None = None


class StreamAssembler:
    """Builds the complete answer from the bytes of an event stream, cut anywhere."""

    def __init__(self) -> None:
        self._events = EventParser()
        self._choices: dict[int, _Choice] = {}
        self._usage: Any = None
        self._model: str | None = None
        self._id: str | None = None
        self.is_done = False
        """True once the terminal event `[DONE]` has come."""
        self.error: str | None = None
        """The provider's words when it sent an error as an event of the stream."""

    @property
    def is_complete(self) -> bool:
        """True when each choice has its finish reason and no error came: `[DONE]` may be missing."""
        choices = self._choices.values()
        return self.error is None and bool(choices) and all(choice.finish_reason for choice in choices)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            ValueError: An event's data is not JSON.
        """
        for event in self._events.feed(piece):
            if event.data.strip() == "[DONE]":
                self.is_done = True
            elif event.data.strip():
                self._take(json.loads(event.data))

    def _take(self, chunk: Any) -> None:
        if not isinstance(chunk, dict):
            return
        fields = cast("dict[str, Any]", chunk)
        if fields.get("error"):
            error = fields["error"]
            self.error = str(cast("Json", error).get("message") or error) if isinstance(error, dict) else str(error)
        self._usage = fields.get("usage") or self._usage
        self._model = fields.get("model") or self._model
        self._id = fields.get("id") or self._id
        for raw in cast("list[dict[str, Any]]", fields.get("choices") or []):
            choice = self._choices.setdefault(raw.get("index") or 0, _Choice())
            choice.finish_reason = raw.get("finish_reason") or choice.finish_reason
            for name, value in (raw.get("delta") or {}).items():
                if name == "tool_calls":
                    for part in value or ():
                        _merge_tool_call(choice.tool_calls, part)
                else:
                    _merge(choice.message, name, value)

    def completion(self) -> Completion:
        """The answer as far as it has come."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return Completion(
            messages=tuple(
                read_message(
                    {"role": "assistant", "content": None}
                    | choice.message
                    | {"tool_calls": [choice.tool_calls[index] for index in sorted(choice.tool_calls)]}
                )
                for choice in choices
            ),
            finish_reasons=tuple(choice.finish_reason for choice in choices),
            usage=_read_usage(self._usage),
            model=self._model,
            id=self._id,
        )

    @property
    def text(self) -> str:
        """The text of the first choice as far as it has come."""
        return "" if not self._choices else str(self._choices[min(self._choices)].message.get("content") or "")


def _merge_tool_call(calls: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    call = calls.setdefault(part.get("index", len(calls)), {})
    for name, value in part.items():
        if name == "index":
            continue
        if isinstance(value, dict):
            inner = call.setdefault(name, {})
            for key, text in cast("dict[str, Any]", value).items():
                _merge(inner, key, text)
        elif value is not None:
            # Ids and types are sent whole, and some providers repeat them with every part.
            call[name] = value


def _merge(into: dict[str, Any], name: str, value: Any) -> None:
    known = into.get(name)
    if isinstance(value, str) and isinstance(known, str) and name != "role":
        into[name] = known + value
    elif isinstance(value, list) and isinstance(known, list):
        into[name] = [*cast("list[Any]", known), *cast("list[Any]", value)]
    elif value is not None:
        into[name] = value
