"""What all rollouts of a run share, and the one place where it is brought up and taken down."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.clients.base import Client, create_client
from vfx.errors import Mistake
from vfx.interception.base import Interception, create_interception
from vfx.interception.session import Limits
from vfx.runner.config import EvalConfig
from vfx.runtimes.base import Runtime
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

__all__ = ["Environment"]

log = logging.getLogger(__name__)


class Environment:
    """A taskset, a harness and a runtime, with the client and the interception that serve them."""

    def __init__(self, config: EvalConfig) -> None:
        self.client: Client = create_client(config.client)
        self.config = config.model_copy(update={"model": config.model or self.client.default_model})
        self.taskset = config.taskset
        self.harness = config.harness
        self._programs = Programs()
        self.interception: Interception = create_interception(config.interception, self.client)

    @property
    def model(self) -> str:
        """The model that is evaluated."""
        return self.config.model or ""

    @cached_property
    def agent_record(self) -> Mapping[str, Any]:
        """The harness and its configuration, as plain data for the traces."""
        return self.harness.record()

    @cached_property
    def limits(self) -> Limits:
        """Bounds on each rollout."""
        config = self.config
        return Limits(config.max_turns, config.max_input_tokens, config.max_output_tokens, config.max_total_tokens)

    @cached_property
    def hook_threads(self) -> HookThreads:
        """Where plain and isolated hooks run. Apart from anyio's own threads, which file access needs."""
        return HookThreads()

    @cached_property
    def system_prompt(self) -> str | None:
        """What replaces the tasks' system prompt; None = theirs stay."""
        file = self.taskset.system_prompt_file
        return self.taskset.system_prompt if file is None else file.read_text("utf-8")

    def mistakes(self) -> list[Mistake]:
        """What keeps this environment from running and can be known before anything is started."""
        mistakes = [*self.client.mistakes(), *self.harness.mistakes(), *self.harness.runtime.mistakes()]
        if not self.model:
            mistakes.append(Mistake("no model is named", "-m", "name one, such as -m gpt-4.1-mini"))
        try:
            _ = self.system_prompt
        except (OSError, UnicodeDecodeError) as error:
            file = self.taskset.system_prompt_file
            mistakes.append(Mistake(f"can't be read: {error}", f"--taskset.system-prompt-file {file}"))
        return mistakes

    def create_runtime(self, task: Task) -> Runtime:
        """A box for one rollout of `task`, not started yet."""
        return SubprocessRuntime(self.config.runtime_for(task), self._programs)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Up: client, programs, what the harness shares, interception. Down: the same in reverse, whatever happens.

        Raises:
            RunError: Something could not be started; what had been is taken down again.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client.serving())
            await stack.enter_async_context(self._programs.serving())
            await stack.enter_async_context(self.harness.serving())
            await stack.enter_async_context(self.hook_threads.processes.serving())
            await stack.enter_async_context(self.interception.serving())
            log.debug("serving")
            yield
            log.debug("taking down")
