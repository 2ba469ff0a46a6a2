"""A client without a model: it gives a program that is run again the answers that its rollout was given before.

An answer is found by the conversation that it was given to. Equal ones of a rollout are answered in recorded order.
What differs from run to run, such as the rollout's folder, is masked, and put into the answer as it is today.
"""

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, cast

import anyio
import anyio.to_thread

from vfx.clients.answers.answer import Answer
from vfx.clients.answers.writers import WRITERS
from vfx.clients.base import Client, ProviderRequest, ProviderResponse
from vfx.clients.recording import Recording
from vfx.clients.scripted import JSON_TYPE, STREAM_TYPE, Pieces, count_words
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS
from vfx.errors import DriftError, ProviderError
from vfx.messages import Completion
from vfx.trace.record import Trace

__all__ = ["RecordedClient", "Rollout"]

# What takes longer to look up than other rollouts should wait.
LARGE_BODY = 1 << 17

Rollout = tuple[str, int, int]
"""A rollout across runs: the task's key, its occurrence among equal tasks, the number of the rollout."""

_BY_PATH = {dialect.path: dialect for dialect in DIALECTS.values()}


class RecordedClient(Client):
    """Answers each rollout from its own record, in whichever dialect it is asked.

    Args:
        read: The recorded trace of a rollout; None when there is none. It may block, and is called in a thread.
        model: The model that was evaluated.
    """

    def __init__(self, read: Callable[[Rollout], Trace | None], model: str) -> None:
        super().__init__()
        self._read = read
        self._model = model
        self._ids = count(1)
        self._locks: dict[Rollout, anyio.Lock] = {}
        self._recordings: dict[Rollout, tuple[str, Recording]] = {}
        """By rollout: the attempt that is under way, and what it is answered from."""

    @property
    def default_model(self) -> str | None:
        """The one that was evaluated."""
        return self._model

    @property
    def endpoint(self) -> str:
        """See `Client.endpoint`."""
        return "recorded"

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Nothing is held."""
        yield

    def release(self, rollout: Rollout) -> Recording | None:
        """Forget a rollout that has ended; what it was answered from, None when it asked nothing."""
        self._locks.pop(rollout, None)
        _, recording = self._recordings.pop(rollout, ("", None))
        return recording

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        sent = time.monotonic()
        yield await self._answer(request)
        self.observer.answered(sent)

    async def _answer(self, request: ProviderRequest) -> ProviderResponse:
        path = request.path.partition("?")[0]
        if (request.method, path) == ("GET", "models"):
            model = {"id": self._model, "object": "model", "created": 0, "owned_by": "vfx"}
            return ProviderResponse(200, JSON_TYPE, json.dumps({"object": "list", "data": [model]}).encode())
        if path == f"{ANTHROPIC.path}/count_tokens":
            return _count_tokens(request)
        dialect = _BY_PATH.get(path)
        if dialect is None or request.asker is None or request.method != "POST":
            return _refuse(f"{request.method} {request.path} is not on record", dialect or CHAT, status=404)
        try:
            found = await self._find(request.asker, request)
        except DriftError as drift:
            # Of no other status all programs know that asking again is of no use.
            return _refuse(str(drift), dialect, status=400, error=drift)
        if isinstance(found, ProviderError):
            return _fail(found, dialect)
        return self._write(path, request, found)

    async def _find(self, asker: Trace, request: ProviderRequest) -> Completion | ProviderError:
        rollout = (asker.task.key, asker.task.occurrence, asker.rollout)
        async with self._locks.setdefault(rollout, anyio.Lock()):
            attempt, recording = self._recordings.get(rollout, ("", None))
            if recording is None or attempt != asker.id:
                recording = await anyio.to_thread.run_sync(self._load, rollout)
                self._recordings[rollout] = asker.id, recording
            find = partial(recording.find, request.prompt, time.time(), request.side)
            return await anyio.to_thread.run_sync(find) if len(request.body) > LARGE_BODY else find()

    def _load(self, rollout: Rollout) -> Recording:
        trace = self._read(rollout)
        if trace is None:
            raise DriftError("drift: there is no record of this rollout", is_final=True)
        return Recording(trace)

    def _write(self, path: str, request: ProviderRequest, completion: Completion) -> ProviderResponse:
        has_usage = path != CHAT.path or _asks_for_usage(request.body)
        answer = Answer(completion, f"recorded_{next(self._ids)}", "event" if has_usage else "last")
        if request.is_stream:
            return ProviderResponse(200, STREAM_TYPE, chunks=Pieces(WRITERS[path].stream(answer)))
        return ProviderResponse(200, JSON_TYPE, json.dumps(WRITERS[path].whole(answer)).encode())


def _asks_for_usage(raw: bytes) -> bool:
    if b'"include_usage"' not in raw:
        return False
    options = cast("Mapping[str, Any]", json.loads(raw)).get("stream_options")
    return isinstance(options, dict) and bool(cast("Any", options).get("include_usage"))


def _count_tokens(request: ProviderRequest) -> ProviderResponse:
    """No record tells it, and none of the answers depends on it: words will do."""
    try:
        conversation = ANTHROPIC.read_prompt(json.loads(request.body))
    except (ValueError, AttributeError) as error:
        return _refuse(f"the request can't be read: {error}", ANTHROPIC, status=400)
    return ProviderResponse(200, JSON_TYPE, json.dumps({"input_tokens": count_words(conversation)}).encode())


def _fail(error: ProviderError, dialect: Dialect) -> ProviderResponse:
    """A call that failed then, and fails again."""
    if error.status is None or error.status < 400:
        raise error
    body = dialect.error_body(str(error), type="provider_error")
    return ProviderResponse(error.status, JSON_TYPE, body, error=error)


def _refuse(text: str, dialect: Dialect, *, status: int, error: ProviderError | None = None) -> ProviderResponse:
    body = dialect.error_body(text, type="invalid_request_error", code="not_on_record")
    return ProviderResponse(status, JSON_TYPE, body, error=error or ProviderError(text, status=status))
