"""Replies of the scripted provider: what is sent, when, and how the connection ends."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Reply", "completion", "stream"]

MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the provider does with one request."""

    status: int | None = 200
    """None = not even a status line is sent."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    chunks: Sequence[bytes] | None = None
    """Sent one by one with chunked transfer encoding, in place of `body`."""
    delay: float = 0.0
    """Seconds before the status line."""
    chunk_delay: float | Sequence[float] = 0.0
    """Seconds before each chunk; a list gives those of the first chunks."""
    ending: Literal["normal", "reset", "hang", "close-early"] = "normal"
    """After the last byte of `body` or `chunks`; all but `normal` leave out the end that the headers announced."""


def completion(
    text: str | None = "Hello.",
    *,
    usage: tuple[int, int] | None = (5, 3),
    finish_reason: str = "stop",
    tool_calls: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
    **fields: Any,
) -> Reply:
    """A complete chat completion; `usage` is (prompt, answer) tokens, `fields` replace fields of the body."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool_calls:
        message["tool_calls"] = list(tool_calls)
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        **_usage(usage),
        **fields,
    }
    raw = json.dumps(body).encode()
    return Reply(200, {"Content-Type": "application/json", **(headers or {})}, raw, delay=delay)


def stream(
    *pieces: str,
    usage: tuple[int, int] | None = (5, 3),
    finish_reason: str | None = "stop",
    is_done: bool = True,
    delay: float = 0.0,
    chunk_delay: float | Sequence[float] = 0.0,
    ending: Literal["normal", "reset", "hang", "close-early"] = "normal",
) -> Reply:
    """A chat completion as an event stream, one chunk per event: role, `pieces`, finish reason, usage, [DONE].

    Args:
        pieces: The text, in the pieces in which it is streamed.
        usage: (prompt, answer) tokens; None leaves the event out.
        finish_reason: None leaves the event out.
        is_done: Whether [DONE] is sent.
        delay: Seconds before the status line.
        chunk_delay: Seconds before each event.
        ending: What follows the last event.
    """
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    if finish_reason is not None:
        deltas.append(({}, finish_reason))
    choices = [[{"index": 0, "delta": delta, "finish_reason": reason}] for delta, reason in deltas]
    events: list[dict[str, Any]] = [{"choices": choice} for choice in choices]
    if usage is not None:
        events.append({"choices": [], **_usage(usage)})
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    chunks = [b"data: " + json.dumps(common | event).encode() + b"\n\n" for event in events]
    if is_done:
        chunks.append(b"data: [DONE]\n\n")
    headers = {"Content-Type": "text/event-stream"}
    return Reply(200, headers, chunks=chunks, delay=delay, chunk_delay=chunk_delay, ending=ending)


def _usage(usage: tuple[int, int] | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {"usage": dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True), total_tokens=sum(usage))}
