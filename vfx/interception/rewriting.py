"""Calls a task's intercept hooks with what passes, and remembers what they made of it for the rest of the rollout."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from vfx.errors import TaskError
from vfx.messages import Content, Message
from vfx.trace.graph import message_hash
from vfx.trace.record import Rewrite, Trace

__all__ = ["Intercept", "Rewriter"]


@dataclass(frozen=True, slots=True)
class Intercept:
    """One hook."""

    name: str
    direction: str
    """`request` or `response`."""
    call: Callable[[Message], Awaitable[Any]]
    """Gives the message that takes the place of its argument, or None."""


class Rewriter:
    """The intercept hooks of one rollout."""

    def __init__(self, intercepts: Sequence[Intercept], trace: Trace) -> None:
        """See the class.

        Args:
            intercepts: The task's hooks, each called with what the one before it made.
            trace: Where changes are recorded.
        """
        self._request = [intercept for intercept in intercepts if intercept.direction == "request"]
        self._response = [intercept for intercept in intercepts if intercept.direction == "response"]
        self._trace = trace
        self._pinned: dict[bytes, Message | None] = {}
        """What has become of a tool result; None = it stayed as it was."""
        self._lock = anyio.Lock()

    @property
    def sees_requests(self) -> bool:
        """True when tool results have to be shown to a hook."""
        return bool(self._request)

    @property
    def sees_responses(self) -> bool:
        """True when an answer can't be passed on before it is complete."""
        return bool(self._response)

    async def rewrite_results(self, prompt: Sequence[Message]) -> tuple[list[Message], Mapping[str, Content]]:
        """A prompt with its tool results as the hooks want them, and the new contents by the ids of their calls.

        Raises:
            TaskError: A hook failed, or gave what it may not.
        """
        changed: dict[str, Content] = {}
        rewritten: list[Message] = []
        # Concurrent calls of one rollout repeat the same results: each is shown to the hooks once.
        async with self._lock:
            for message in prompt:
                new = await self._result(message) if message.role == "tool" and message.tool_call_id else message
                rewritten.append(new)
                if new is not message:
                    changed[message.tool_call_id or ""] = new.content
        return rewritten, changed

    async def _result(self, message: Message) -> Message:
        identity = message_hash(message)
        if identity not in self._pinned:
            new = await self._through(self._request, message)
            self._pinned[identity] = None if new is message else new
        pinned = self._pinned[identity]
        return message if pinned is None else replace(message, content=pinned.content)

    async def rewrite_answers(self, answers: Sequence[Message]) -> list[Message]:
        """What the program gets in the place of the model's answers; the same objects where nothing changes.

        Raises:
            TaskError: A hook failed, or gave what it may not.
        """
        return [await self._through(self._response, answer) for answer in answers]

    async def _through(self, intercepts: Sequence[Intercept], message: Message) -> Message:
        for intercept in intercepts:
            new = _checked(intercept, message, await intercept.call(message))
            if new is not message:
                self._trace.rewrites.append(Rewrite(intercept.name, intercept.direction, message, new))
                message = new
        return message


def _checked(intercept: Intercept, message: Message, given: Any) -> Message:
    if given is None or given == message:
        return message
    where = f"intercept {intercept.name!r}"
    if not isinstance(given, Message):
        raise TaskError(f"{where} gave {type(given).__name__}; expected a vfx.Message, or None")
    if intercept.direction == "request":
        if replace(given, content=message.content) != message:
            raise TaskError(f"{where} changed more than the content of a tool result")
    elif replace(given, content=message.content, tool_calls=message.tool_calls) != message:
        raise TaskError(f"{where} changed more than the text and the tool calls of an answer")
    elif any(call not in message.tool_calls for call in given.tool_calls):
        raise TaskError(f"{where} gave a tool call that the model did not make: calls can only be left out")
    return given
