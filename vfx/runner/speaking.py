"""The simulated user of one rollout: calls what the task's `User` defines, once for each answer of the model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vfx.authoring.hooks import call_hook, lifecycle_hook
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.authoring.user import User
from vfx.clients.asking import Asker
from vfx.errors import HarnessError, ProviderError, UserError, attributed
from vfx.messages import Message
from vfx.trace.record import Trace

__all__ = ["RolloutUser"]


class RolloutUser:
    """A `Speaker` over a task's user.

    Args:
        user: The task's, which all rollouts share.
        task: What the rollout is about.
        trace: Of the rollout; the conversation is read from it.
        available: What the user's methods may ask for, beside the conversation.
        threads: Where plain methods run.
        asker: Reaches the model that plays the user; None for a user without a model.
        has_turns_left: Whether the model may answer once more; None = it always may.
    """

    def __init__(
        self,
        user: User,
        task: Task,
        trace: Trace,
        available: Mapping[str, Any],
        threads: HookThreads,
        asker: Asker | None = None,
        has_turns_left: Callable[[], bool] | None = None,
    ) -> None:
        self._user = user
        self._name = type(user).__name__
        self._task = task
        self._trace = trace
        self._available = available
        self._threads = threads
        self._asker = asker
        self._has_turns_left = has_turns_left
        self._turn = 0
        self._heard = 0
        self._said: list[str] = []

    async def opened(self, messages: Sequence[Message]) -> Sequence[Message]:
        """How the conversation starts: the task's messages, and what the user says first when the task has no prompt.

        Raises:
            UserError: The user failed.
        """
        if self._task.prompt is None and lifecycle_hook(type(self._user), "open") is not None:
            said = await self._call("open", {})
            if said is None:
                raise UserError(f"open of {self._name} must give the first message, got None")
            messages = [*messages, Message("user", said)]
        self._said = [message.text for message in messages if message.role == "user" and message.text]
        return messages

    async def respond(self) -> str | None:
        """See `Speaker.respond`."""
        if self._trace.stop_condition is not None:
            return None
        if self._trace.num_turns == self._heard:
            raise HarnessError("the user has nothing to respond to: the model has given no answer since they spoke")
        self._heard = self._trace.num_turns
        if self._has_turns_left is not None and not self._has_turns_left():
            # Nobody would answer what the user says, and a model that plays one is paid for.
            return None
        if self._user.max_turns is not None and self._turn >= self._user.max_turns:
            self._trace.stop_condition = "user_max_turns"
            return None
        turn, self._turn = self._turn, self._turn + 1
        said = await self._call("respond", {"messages": self._conversation(), "turn": turn})
        if said:
            self._said.append(said)
        return said

    def _conversation(self) -> Sequence[Message]:
        """The trace's, with its last answer as the program has got it, and of the user what the user has said."""
        *earlier, last = self._trace.messages
        for rewrite in self._trace.rewrites:
            if rewrite.direction == "response" and rewrite.before == last:
                last = rewrite.after
        return (*_as_said(earlier, self._said), last)

    async def _call(self, name: str, more: Mapping[str, Any]) -> str | None:
        what = f"{name} of {self._name}"
        hook = lifecycle_hook(type(self._user), name)
        if hook is None:
            raise UserError(f"{self._name} has no method {name}")
        # A tool may have replaced the state since the rollout began.
        available = {**self._available, "state": self._trace.state, "ask": self._ask, **more}
        try:
            with attributed(UserError, what):
                said = await call_hook(hook, self._user, available, self._threads)
        except ProviderError as error:
            failure = UserError(f"{what}: {error}")
            failure.fatal = error.fatal
            raise failure from error
        except UserError as error:
            raise _placed(error, what) from error.__cause__
        if said is not None and not isinstance(said, str):
            raise UserError(f"{what} must give text, or None to end, got {said!r:.200}")
        return said

    async def _ask(self, messages: Sequence[Message]) -> Message:
        if self._asker is None:
            raise UserError(f"{self._name} has no model")
        return await self._asker.ask(self._trace, "user", self._name, messages)


def _as_said(messages: Sequence[Message], said: Sequence[str]) -> Sequence[Message]:
    """The messages without what the program has added in the user's name: reminders, contexts, pictures of tools.

    As they are when not all that was said is found in them, as in a conversation that the program has summed up.
    """
    left = list(said)
    kept: list[Message] = []
    for message in messages:
        if message.role != "user":
            kept.append(message)
            continue
        text, own = message.text, list[str]()
        while left and left[0] in text:
            own.append(left.pop(0))
        if own:
            kept.append(message if own == [text] else Message("user", "\n\n".join(own)))
    return messages if left else kept


def _placed(error: UserError, what: str) -> UserError:
    """An error that says where it arose."""
    return error if str(error).startswith(what) else UserError(f"{what}: {error}")
