"""Tasks that take part in the conversation: what a game, a quiz or a tutor says next follows from what was said."""

from abc import abstractmethod
from collections.abc import Sequence

from vfx.authoring.task import Task
from vfx.messages import Message

__all__ = ["DialogueTask"]


class DialogueTask(Task):
    """A task for the harness `dialogue`: after each answer of the model, `respond` says what comes next."""

    @abstractmethod
    def respond(self, messages: Sequence[Message]) -> str | None:
        """What the user says now; may be a coroutine function, too.

        A plain one runs in a thread. The task is frozen and shared by its rollouts: what has happened so far is in the
        messages.

        Args:
            messages: The conversation, oldest first; the last one is the model's answer.

        Returns:
            The next user message; None ends the conversation.
        """
        raise NotImplementedError(f"{type(self).__name__} has no respond method")
