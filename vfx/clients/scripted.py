"""A client without a model: it answers from a script, in whichever dialect it is asked."""

import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import anyio
import anyio.lowlevel

from vfx.clients.answers.answer import Answer
from vfx.clients.answers.writers import WRITERS
from vfx.clients.base import Client, ProviderRequest, ProviderResponse, ScriptedSettings
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS
from vfx.errors import Mistake, ProviderError
from vfx.messages import Completion, Message, ToolCall, Usage

__all__ = ["JSON_TYPE", "STREAM_TYPE", "Pieces", "ScriptedClient", "count_words"]

MODEL = "scripted"
JSON_TYPE = (("Content-Type", "application/json"),)
STREAM_TYPE = (("Content-Type", "text/event-stream"),)
_BY_PATH = {dialect.path: dialect for dialect in DIALECTS.values()}


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
        sent = time.monotonic()
        await anyio.sleep(self._settings.latency)
        yield self._answer(request)
        self.observer.answered(sent)

    def _answer(self, request: ProviderRequest) -> ProviderResponse:
        path = request.path.partition("?")[0]
        if (request.method, path) == ("GET", "models"):
            listing = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "vfx"}]}
            return ProviderResponse(200, JSON_TYPE, json.dumps(listing).encode())
        is_count = path == f"{ANTHROPIC.path}/count_tokens"
        dialect = ANTHROPIC if is_count else _BY_PATH.get(path)
        if dialect is None or request.method != "POST":
            return _refuse(404, f"the scripted client has no {request.method} {request.path}")
        try:
            body = cast("dict[str, Any]", json.loads(request.body))
            conversation = dialect.read_prompt(body)
        except (ValueError, AttributeError) as error:
            return _refuse(400, f"not a request for {dialect.answer}: {error}", dialect)
        if is_count:
            return ProviderResponse(200, JSON_TYPE, json.dumps({"input_tokens": count_words(conversation)}).encode())
        answer = self._compose(body, conversation)
        if request.is_stream:
            return ProviderResponse(200, STREAM_TYPE, chunks=Pieces(WRITERS[path].stream(answer)))
        return ProviderResponse(200, JSON_TYPE, json.dumps(WRITERS[path].whole(answer)).encode())

    def _compose(self, body: dict[str, Any], conversation: Sequence[Message]) -> Answer:
        text = self._reply(conversation)
        number = next(self._ids)
        call = _tool_call(text, f"call_{number}")
        options = body.get("stream_options")
        is_usage_asked = isinstance(options, dict) and bool(cast("Any", options).get("include_usage"))
        completion = Completion(
            messages=(Message("assistant", None, (call,)) if call else Message("assistant", text),),
            finish_reasons=("tool_calls" if call else "stop",),
            usage=Usage(count_words(conversation), len(text.split())),
            model=str(body.get("model") or MODEL),
        )
        return Answer(completion, f"scripted_{number}", "event" if is_usage_asked else "none")

    def _reply(self, conversation: Sequence[Message]) -> str:
        if self._replies:
            turn = sum(message.role == "assistant" for message in conversation)
            return self._replies[turn % len(self._replies)]
        return next((message.text for message in reversed(conversation) if message.role == "user"), "")


def _tool_call(reply: str, call_id: str) -> ToolCall | None:
    """The call that a reply in JSON stands for; None for any other reply."""
    if not reply.startswith("{"):
        return None
    try:
        given: Any = json.loads(reply)
    except ValueError:
        return None
    if given.keys() != {"tool", "arguments"} or not isinstance(given["tool"], str):
        return None
    return ToolCall(call_id, given["tool"], json.dumps(given["arguments"]))


def count_words(conversation: Sequence[Message]) -> int:
    """The words of all messages."""
    return sum(len(message.text.split()) for message in conversation)


def _refuse(status: int, text: str, dialect: Dialect = CHAT) -> ProviderResponse:
    error = ProviderError(f"HTTP {status} from the scripted client: {text}", status=status)
    return ProviderResponse(status, JSON_TYPE, dialect.error_body(text, type="invalid_request_error"), error=error)


class Pieces:
    """A body that arrives in pieces, with room for others between them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        piece = next(self._pieces, None)
        if piece is None:
            raise StopAsyncIteration
        return piece
