"""A conversation in turns, held in this process: the model speaks, then the task, until the task has no more to say."""

import inspect
from collections.abc import Sequence
from typing import Any

from pydantic import PrivateAttr

from vfx.authoring.dialogue import DialogueTask
from vfx.authoring.harness import Job
from vfx.authoring.threads import HookThreads
from vfx.dialects import chat
from vfx.errors import HarnessError, TaskError, attributed
from vfx.harnesses.chat import Chat
from vfx.messages import Message
from vfx.runtimes.base import ProgramResult

__all__ = ["Dialogue"]


class Dialogue(Chat):
    """Asks, lets the task respond, and asks again. `--max-turns` bounds it where the task does not."""

    # Not anyio's own threads, which a task that blocks would take from those who write files.
    _threads: HookThreads = PrivateAttr(default_factory=HookThreads)

    async def run(self, job: Job) -> ProgramResult | None:
        """Hold the conversation.

        Raises:
            HarnessError: The endpoint answered with an error, or the task does not take part in conversations.
            TaskError: The task's `respond` failed.
        """
        task = job.task
        if not isinstance(task, DialogueTask):
            name = type(task).__name__
            raise HarnessError(f"the harness dialogue needs a task that responds: {name} is no vfx.DialogueTask")
        conversation = list(job.messages)
        if not conversation:
            raise HarnessError("the task has no prompt, and nobody else opens the conversation")
        while True:
            answer = await self._ask(job, [chat.write_message(message) for message in conversation])
            conversation.append(chat.read_message(answer["choices"][0]["message"]))
            response = await self._respond(task, conversation)
            if response is None:
                return None
            conversation.append(Message("user", response))

    async def _respond(self, task: DialogueTask, conversation: Sequence[Message]) -> str | None:
        what = f"respond of {type(task).__name__}"
        with attributed(TaskError, what):
            said: Any = tuple(conversation)
            if inspect.iscoroutinefunction(task.respond):
                response: Any = await task.respond(said)
            else:
                response = await self._threads.run(what, task.respond, said)
        if response is not None and not isinstance(response, str):
            raise TaskError(f"{what} must give text, or None to end, got {response!r:.200}")
        return response
