"""A client without a model: it answers chat completions from a script, in the provider's own format."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import anyio
import anyio.lowlevel

from vfx.clients.base import Client, ProviderRequest, ProviderResponse, ScriptedSettings
from vfx.dialects.chat import error_body, read_prompt
from vfx.errors import Mistake, ProviderError
from vfx.messages import Message

__all__ = ["ScriptedClient"]

MODEL = "scripted"
JSON_TYPE = (("Content-Type", "application/json"),)
STREAM_TYPE = (("Content-Type", "text/event-stream"),)


class ScriptedClient(Client):
    """Answers turn n of every conversation with reply n, from the start again after the last.

    Without replies the last user message comes back. Tokens are counted as words.
    """

    def __init__(self, settings: ScriptedSettings) -> None:
        super().__init__()
        self._settings = settings
        self._ids = count(1)
        self._replies: Sequence[str] = settings.replies
        self._file_mistake: Mistake | None = None
        if settings.file is not None:
            try:
                self._replies = settings.file.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                self._file_mistake = Mistake(f"can't be read: {error}", f"--client.file {settings.file}")

    @property
    def default_model(self) -> str | None:
        """`scripted`, so that nobody takes its answers for a model's."""
        return MODEL

    @property
    def endpoint(self) -> str:
        """See `Client.endpoint`."""
        return "scripted"

    def mistakes(self) -> list[Mistake]:
        """See `Client.mistakes`."""
        if self._settings.file is None:
            return []
        if self._file_mistake:
            return [self._file_mistake]
        where = f"--client.file {self._settings.file}"
        if self._settings.replies:
            return [Mistake("replies come from a file or from --client.replies, not both", where, "leave one out")]
        return [] if self._replies else [Mistake("the file is empty, expected one answer a line", where)]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Nothing is held."""
        yield

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        await anyio.sleep(self._settings.latency)
        yield self._answer(request)

    def _answer(self, request: ProviderRequest) -> ProviderResponse:
        if (request.method, request.path) == ("GET", "models"):
            listing = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "vfx"}]}
            return ProviderResponse(200, JSON_TYPE, json.dumps(listing).encode())
        if (request.method, request.path) != ("POST", "chat/completions"):
            return _refuse(404, f"the scripted client has no {request.method} {request.path}")
        try:
            body = cast("dict[str, Any]", json.loads(request.body))
            conversation = read_prompt(body)
        except (ValueError, AttributeError) as error:
            return _refuse(400, f"not a chat completion request: {error}")
        text = self._reply(conversation)
        prompt, answer = sum(len(message.text.split()) for message in conversation), len(text.split())
        usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        common = {"id": f"chatcmpl-scripted-{next(self._ids)}", "created": 0, "model": str(body.get("model") or MODEL)}
        if request.is_stream:
            options = body.get("stream_options")
            is_usage_wanted = isinstance(options, dict) and bool(cast("dict[str, Any]", options).get("include_usage"))
            return ProviderResponse(200, STREAM_TYPE, chunks=_Events(common, text, usage if is_usage_wanted else None))
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        whole = common | {"object": "chat.completion", "choices": choices, "usage": usage}
        return ProviderResponse(200, JSON_TYPE, json.dumps(whole).encode())

    def _reply(self, conversation: Sequence[Message]) -> str:
        if self._replies:
            turn = sum(message.role == "assistant" for message in conversation)
            return self._replies[turn % len(self._replies)]
        return next((message.text for message in reversed(conversation) if message.role == "user"), "")


def _refuse(status: int, text: str) -> ProviderResponse:
    error = ProviderError(f"HTTP {status} from the scripted client: {text}", status=status)
    return ProviderResponse(status, JSON_TYPE, error_body(text, type="invalid_request_error"), error=error)


class _Events:
    """The answer as an event stream, one event a word."""

    def __init__(self, common: dict[str, Any], text: str, usage: dict[str, int] | None) -> None:
        first, *others = text.split(" ")
        words = [first, *(f" {word}" for word in others)]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
        events: list[dict[str, Any]] = [_choice(delta, None) for delta in deltas] + [_choice({}, "stop")]
        if usage:
            events.append({"choices": [], "usage": usage})
        lines = [json.dumps(common | {"object": "chat.completion.chunk"} | event) for event in events]
        self._pieces = iter([f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]])

    def __aiter__(self) -> "_Events":
        return self

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        piece = next(self._pieces, None)
        if piece is None:
            raise StopAsyncIteration
        return piece


def _choice(delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
