"""Conversations as they are compared across runs: exactly, and with what differs from run to run masked. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast

from vfx.clients.tapes.matching import mask, mask_times
from vfx.clients.tapes.names import Names
from vfx.messages import Content, Message, ToolCall
from vfx.trace.graph import message_hash

__all__ = ["Form", "as_body", "chain", "form_of", "identity", "told"]

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Form:
    """A conversation, masked."""

    key: bytes
    """Equal for equal ones."""
    found: tuple[str, ...]
    """What was masked and an answer may be about, in order."""


def chain(start: bytes, messages: Sequence[Message]) -> bytes:
    """Identity of a conversation that goes on from the one whose identity is `start`; b"" for one that begins."""
    digest = start
    for message in messages:
        digest = blake2b(digest + identity(message), digest_size=DIGEST_BYTES).digest()
    return digest


def identity(message: Message) -> bytes:
    """Identity of a message, whatever a program makes of its thoughts."""
    # Programs send thoughts back, or leave them out.
    plain = replace(message, reasoning=None, opaque=()) if message.reasoning or message.opaque else message
    return message_hash(plain)


def form_of(prompt: Sequence[Message], at: float) -> Form:
    """A conversation that was sent at `at`, in seconds since the epoch."""
    masked, found = mask({"messages": [_plain(message) for message in prompt]})
    text = mask_times(json.dumps(masked, sort_keys=True), at)
    return Form(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), found)


def as_body(prompt: Sequence[Message]) -> bytes:
    """A conversation as JSON, to tell how two differ."""
    return json.dumps({"messages": [_plain(message) for message in prompt]}).encode()


def _plain(message: Message) -> dict[str, Any]:
    """A message as it is compared: what a program may leave out, or write in another way, is left out."""
    fields = {
        "role": message.role,
        "content": _plain_content(message.content),
        "tool_calls": [_plain_call(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "refusal": message.refusal,
    }
    return {name: value for name, value in fields.items() if value or name == "role"}


def _plain_content(content: Content) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_plain_part(part) for part in content]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts


def _plain_part(part: Mapping[str, Any]) -> Any:
    if isinstance(part.get("text"), str) and str(part.get("type")).endswith("text"):
        return part["text"]
    return {name: value for name, value in part.items() if name != "cache_control" and value is not None}


def _plain_call(call: ToolCall) -> dict[str, Any]:
    arguments: Any = call.arguments
    if call.type == "function":
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = call.arguments
    return {"id": call.id, "name": call.name, "arguments": arguments}


def told(message: Message, names: Mapping[str, str]) -> Message:
    """An answer with other names in its texts.

    Args:
        message: The answer.
        names: What takes the place of each name.
    """
    if not names:
        return message
    tell = Names(names).tell
    content = message.content
    if content is not None:
        content = tell(content) if isinstance(content, str) else [_told_value(part, tell) for part in content]
    calls = tuple(replace(call, arguments=tell(call.arguments)) for call in message.tool_calls)
    reasoning = tell(message.reasoning) if message.reasoning else message.reasoning
    return replace(message, content=content, tool_calls=calls, reasoning=reasoning)


def _told_value(value: Any, tell: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return tell(value)
    if isinstance(value, list):
        return [_told_value(item, tell) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _told_value(item, tell) for name, item in cast("dict[str, Any]", value).items()}
    return value
