"""Simulated users: whoever speaks to the model after it has answered. A task names one as its `user`."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from pydantic import Field

from vfx.authoring.hooks import lifecycle_hook
from vfx.authoring.names import refuse_fields
from vfx.clients.asking import ModelSettings
from vfx.errors import UserError
from vfx.messages import Message
from vfx.settings import Settings

__all__ = ["Ask", "ModelUser", "ScriptedUser", "User"]

Ask = Callable[[Sequence[Message]], Awaitable[Message]]
"""Asks the model of a `ModelUser`, and keeps the exchange on the trace."""

RESERVED = frozenset({"open", "respond", "brief", "ask", "messages", "runtime", "state", "task", "trace", "turn"})

_NAME = re.compile(r"\{([a-zA-Z_]\w*)\}")
GREETING = "Hello, how can I help you?"
"""What the model that plays a user is asked first, so that the turns alternate whoever opened."""
RULES = """\
You play the user in a conversation with an assistant. Below is who you are and what you want. Write only what this \
user says next, in the user's own words, and never speak for the assistant. Once you have what you want, or it is \
clear that you won't get it, write {stop_marker} and nothing else.

"""


class _SomeTask(Protocol):
    """What users need of a task; its module builds on this one."""

    prompt: Any

    @property
    def data(self) -> Any: ...


class User(Settings):
    """Subclass it and write `respond`. Fields are its configuration: `--taskset.task.user.NAME VALUE`.

    `respond` is a plain or async method that asks for what it needs by parameter name: `messages` (the conversation,
    oldest first, whose last one is the model's answer), `turn` (how often the user has responded before), `task`,
    `state`, `trace`, `runtime`. It gives the next user message as text; None ends the conversation. `open` is optional
    and gives the first message of a task that has no prompt. One object serves all rollouts: what has happened so far
    is in the messages, and in the state.
    """

    max_turns: int | None = Field(default=100, ge=1)
    """How often it responds; after that the conversation is over. None = until it ends it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        refuse_fields(cls, RESERVED)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, not when a rollout runs."""
        super().__pydantic_init_subclass__(**kwargs)
        for hook in (lifecycle_hook(cls, name) for name in ("open", "respond")):
            if hook is not None and "ask" in hook.parameters and not issubclass(cls, ModelSettings):
                raise TypeError(f"{cls.__name__}.{hook.name} asks for ask, which subclasses of vfx.ModelUser get")


class ScriptedUser(User):
    """Says the same in every rollout, whatever the model answers."""

    max_turns: int | None = Field(default=None, ge=1)
    """How often it responds; None = until it has said all lines."""
    lines: tuple[str, ...] = ()
    """What it says, one after each answer of the model; the first one opens where the task has no prompt."""

    def open(self) -> str:
        """The first line.

        Raises:
            UserError: There is none.
        """
        if not self.lines:
            raise UserError("there is no line to open the conversation with (--taskset.task.user.lines)")
        return self.lines[0]

    def respond(self, task: _SomeTask, turn: int) -> str | None:
        """The next line; None when all have been said."""
        said = turn + (task.prompt is None)
        return self.lines[said] if said < len(self.lines) else None


class ModelUser(User, ModelSettings):
    """A model that plays the user. It sees what is said, not the tools; its tokens are counted apart."""

    instructions: str = "You are a curious person who asks the assistant about what it says."
    """Who the user is and what they want. {NAME} is replaced by the field NAME of the task."""
    max_turns: int | None = Field(default=10, ge=1)
    """How often it responds; after that the conversation is over. None = until it ends it."""
    stop_marker: str = Field(default="[DONE]", min_length=1)
    """What it writes to end the conversation; a message that holds it is not passed on."""

    def brief(self, task: _SomeTask) -> str:
        """Who the user of a task is and what they want."""
        data = task.data
        return _NAME.sub(lambda found: str(data[found[1]]) if found[1] in data else found[0], self.instructions)

    async def open(self, task: _SomeTask, ask: Ask) -> str:
        """What the model says first.

        Raises:
            UserError: It said nothing, or that it was done.
        """
        said = await self._said(task, (), ask)
        if said is None:
            raise UserError(f"it ended the conversation with {self.stop_marker} before it had begun")
        return said

    async def respond(self, messages: Sequence[Message], task: _SomeTask, ask: Ask) -> str | None:
        """What the model says next; None when it has written the stop marker.

        Raises:
            UserError: It said nothing.
        """
        return await self._said(task, messages, ask)

    async def _said(self, task: _SomeTask, messages: Iterable[Message], ask: Ask) -> str | None:
        rules = RULES.replace("{stop_marker}", self.stop_marker)
        reply = await ask([Message("system", rules + self.brief(task)), *_swapped(messages)])
        text = reply.text.strip()
        if self.stop_marker in text:
            return None
        if not text:
            raise UserError("the model that plays it answered without text")
        return text


def _swapped(messages: Iterable[Message]) -> list[Message]:
    """The conversation as its user sees it: what they said is the assistant's, and tools are hidden."""
    turns = [("user", GREETING)]
    for message in messages:
        role = {"assistant": "user", "user": "assistant"}.get(message.role)
        text = message.text.strip()
        if role is None or not text:
            continue
        if role == turns[-1][0]:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((role, text))
    return [Message(role, text) for role, text in turns]
