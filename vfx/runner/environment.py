"""What all rollouts of a run share, and the one place where it is brought up and taken down."""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

from vfx._concurrency import prompt_threads
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.authoring.user import User
from vfx.clients.asking import ModelSettings
from vfx.clients.base import Client, Waiting, create_client
from vfx.errors import Mistake
from vfx.interception.base import Interception, create_interception
from vfx.interception.session import Limits
from vfx.runner.config import EvalConfig
from vfx.runner.judging import Judging
from vfx.runner.side_models import SideModels
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.servers import ToolServers

__all__ = ["Environment"]

log = logging.getLogger(__name__)


class Environment:
    """A taskset, a harness and a runtime, with the client and the interception that serve them."""

    def __init__(self, config: EvalConfig, *, client: Client | None = None, is_resumed: bool = False) -> None:
        """See the class.

        Args:
            config: What was asked for.
            client: Answers for every model, from a record; None = those that the configuration chooses.
            is_resumed: The run goes on.
        """
        self.client: Client = client or create_client(config.client, is_resumed=is_resumed)
        self.config = config.model_copy(update={"model": config.model or self.client.default_model})
        self.taskset = config.taskset
        self.harness = config.harness
        self._programs = Programs()
        self.tools = ToolServers(config.taskset.tools, config.taskset.task.tools, self._programs)
        self.side_models = SideModels(
            config.client, self.client, self.config.model, is_resumed=is_resumed, is_recorded=client is not None
        )
        self.user: User | None = getattr(config.taskset.task, "user", None)
        """The simulated user of the tasks that have one; None when there are none."""
        self.user_asker = (
            self.side_models.add(self.user, "taskset.task.user") if isinstance(self.user, ModelSettings) else None
        )
        self.judging = Judging(self.side_models, config.taskset.task.judge_model)
        self.interception: Interception = create_interception(config.interception, self.client)

    @property
    def model(self) -> str:
        """The model that is evaluated."""
        return self.config.model or ""

    @property
    def clients(self) -> Sequence[Client]:
        """The evaluated model's client, and those that reach others."""
        return [self.client, *self.side_models.clients]

    @property
    def waiting(self) -> Waiting:
        """What most calls are held back for at this moment, by whichever client."""
        return max((client.waiting for client in self.clients), key=lambda waiting: waiting.calls)

    @property
    def calls_sent_again(self) -> int:
        """Requests that any client had to repeat."""
        return sum(client.waiting.retries for client in self.clients)

    @property
    def injected_faults(self) -> Counter[str]:
        """What `chaos` has done so far, by kind, in all clients."""
        return sum((client.injected_faults for client in self.clients), Counter[str]())

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
        mistakes = [
            *self.client.mistakes(),
            *self.side_models.mistakes(),
            *self.harness.mistakes(),
            *self.harness.runtime.mistakes(),
            *self.tools.mistakes(),
        ]
        if self.tools and not self.harness.accepts_tools():
            what = f"{self.harness.id or 'it'} can't hand tools to the model, and the environment has tool servers"
            mistakes.append(Mistake(what, "--harness.id", self.harness.tools_hint))
        if self.user is not None and not self.harness.accepts_user():
            what = f"{self.harness.id or 'it'} can't go on with a conversation, and the tasks have a simulated user"
            mistakes.append(Mistake(what, "--harness.id", self.harness.user_hint))
        if not self.model:
            mistakes.append(Mistake("no model is named", "-m", "name one, such as -m gpt-4.1-mini"))
        try:
            _ = self.system_prompt
        except (OSError, UnicodeDecodeError) as error:
            file = self.taskset.system_prompt_file
            mistakes.append(Mistake(f"can't be read: {error}", f"--taskset.system-prompt-file {file}"))
        return mistakes

    def create_runtime(self, task: Task) -> SubprocessRuntime:
        """A box for one rollout of `task`, not started yet."""
        return SubprocessRuntime(self.config.runtime_for(task), self._programs)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Up: clients, programs, tools, what the harness shares, interception. Down: in reverse, whatever happens.

        Raises:
            RunError: Something could not be started; what had been is taken down again.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(prompt_threads())
            await stack.enter_async_context(self.client.serving())
            await stack.enter_async_context(self.side_models.serving())
            await stack.enter_async_context(self._programs.serving())
            await stack.enter_async_context(self.tools.serving())
            await stack.enter_async_context(self.harness.serving())
            await stack.enter_async_context(self.hook_threads.processes.serving())
            await stack.enter_async_context(self.interception.serving())
            log.debug("serving")
            yield
            log.debug("taking down")
