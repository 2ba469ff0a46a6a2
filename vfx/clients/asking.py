"""Asking a model that is not the evaluated one: a judge, a simulated user. Its exchanges are kept apart on the trace.

Such a call goes straight through a client. It passes no interception, and no limit of the rollout counts it.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from vfx.clients.base import Client, ClientSettings, ProviderRequest, ProviderResponse
from vfx.dialects.chat import impose, read_completion, read_usage, write_message
from vfx.dialects.routes import CHAT
from vfx.errors import DriftError, Mistake, ProviderError, RolloutError
from vfx.messages import Message, Sampling, Usage
from vfx.redaction import redact
from vfx.settings import Settings
from vfx.trace.record import ErrorRecord, SideCall, Span, Trace

__all__ = ["Asker", "ModelSettings", "relocated", "relocated_mistake"]

_OPTION = re.compile(r"--client\.([a-z][a-z-]*)")


class ModelSettings(Settings):
    """A model beside the evaluated one, and how it is reached."""

    model: str | None = None
    """Its name; None = the client's own where it has one of its own, else the evaluated model."""
    client: ClientSettings | None = None
    """How it is reached; None = as the evaluated model is."""
    sampling: Sampling = Sampling()
    """Sampling settings of its calls."""


@dataclass(slots=True)
class _Effort:
    """What one call has given so far."""

    reply: Message | None = None
    usage: Usage = field(default_factory=Usage)
    attempts: int = 1
    error: ErrorRecord | None = None
    endpoint: str | None = None
    """Where the reply came from when it was recorded; None = from the client's endpoint."""
    taped: str | None = None


class Asker:
    """Asks one model. Its client is brought up and taken down by whoever made it.

    Args:
        client: What calls go through.
        model: The model's name.
        sampling: Imposed on every call.
        option: Dotted path of the client's options, for messages; None = `--client`.
    """

    def __init__(self, client: Client, model: str, sampling: Sampling, *, option: str | None = None) -> None:
        self.client = client
        self.model = model
        self.sampling = sampling
        self._option = option

    async def ask(
        self,
        trace: Trace,
        purpose: str,
        name: str,
        messages: Sequence[Message],
        *,
        fields: Mapping[str, Any] | None = None,
        check: Callable[[Message], None] | None = None,
    ) -> Message:
        """Make one call and keep it on the trace, whatever becomes of it.

        Args:
            trace: Of the rollout that it is made for.
            purpose: What its tokens count as: `judge` or `user`.
            name: Which judge, or which user.
            messages: What it is asked.
            fields: Further keys of the request's body; None = none.
            check: Raises a RolloutError when the reply can't be used, which is kept with it; None = all can.

        Returns:
            The reply.

        Raises:
            ProviderError: There is no reply. Its text names the options of this model's own client.
            RolloutError: What `check` raises.
        """
        effort, started = _Effort(error=ErrorRecord("provider", "it was ended before an answer came")), time.time()
        try:
            reply = await self._reply(messages, fields or {}, effort, asker=trace, side=f"{purpose} {name}")
            if check is not None:
                check(reply)
        except RolloutError as error:
            effort.error = ErrorRecord.of(error)
            raise
        else:
            effort.error = None
            return reply
        finally:
            trace.side_calls.append(
                SideCall(
                    purpose=purpose,
                    name=name,
                    model=self.model,
                    endpoint=effort.endpoint or self.client.endpoint,
                    span=Span(started, time.time()),
                    messages=tuple(messages),
                    reply=effort.reply,
                    usage=effort.usage,
                    attempts=effort.attempts,
                    error=effort.error,
                    taped=effort.taped,
                )
            )

    async def _reply(
        self, messages: Sequence[Message], fields: Mapping[str, Any], effort: _Effort, *, asker: Trace, side: str
    ) -> Message:
        body = {"model": self.model, "messages": [write_message(message) for message in messages], **fields}
        content = json.dumps(impose(body, self.model, self.sampling)).encode()
        request = ProviderRequest(CHAT.path, content, model=self.model, asker=asker, prompt=messages, side=side)
        try:
            async with self.client.send(request) as response:
                effort.attempts = response.attempts
                effort.endpoint, effort.taped = response.endpoint, response.taped
                return _read(response, effort)
        except ProviderError as error:
            raise self._relocated(error) from error.__cause__

    def _relocated(self, error: ProviderError) -> ProviderError:
        if self._option is None or isinstance(error, DriftError):
            return error
        return ProviderError(
            relocated(str(error), self._option),
            status=error.status,
            fatal=error.fatal,
            truncated=error.truncated,
            is_final=error.is_final,
        )


def _read(response: ProviderResponse, effort: _Effort) -> Message:
    if response.error is not None:
        raise response.error
    try:
        body: Any = json.loads(response.body)
        if not isinstance(body, dict):
            raise ValueError(f"expected an object, got {type(body).__name__}")  # noqa: TRY004, TRY301
        answer = cast("dict[str, Any]", body)
        effort.usage = read_usage(answer.get("usage"))
        effort.reply = read_completion(answer).messages[0]
    except (ValueError, RecursionError) as error:
        start = redact(response.body[:200].decode("utf-8", "replace"))
        raise ProviderError(f"no chat completion came back: {error}; it begins {start!r}") from error
    return effort.reply


def relocated(text: str, option: str) -> str:
    """`text` with the options of `--client` named as those at the dotted path `option`, where they were set."""
    return _OPTION.sub(lambda found: f"{option}.{found[1].replace('-', '_')}", text)


def relocated_mistake(mistake: Mistake, option: str) -> Mistake:
    """A client's mistake as one of the client that is configured at the dotted path `option`."""
    where = relocated(mistake.where, option)
    if not where.startswith(option):
        where = f"{option} ({where})" if where else option
    return Mistake(relocated(mistake.what, option), where, relocated(mistake.hint, option))
