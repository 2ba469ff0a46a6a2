"""The program that drives the model, and the plain data it gets."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from vfx.authoring.names import refuse_fields
from vfx.authoring.task import Task
from vfx.errors import Mistake
from vfx.messages import Message
from vfx.redaction import MASK
from vfx.runtimes.base import ProgramResult, Runtime, SubprocessSettings
from vfx.settings import Settings

__all__ = ["Endpoint", "Harness", "Job", "Speaker", "ToolServer"]

_SECRET = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
RESERVED = frozenset({"accepts_tools", "accepts_user", "mistakes", "record", "run", "serving", "setup"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the program finds its model, as an SDK wants it."""

    base_url: str
    """OpenAI-compatible, ends in `/v1`."""
    api_key: str
    """The rollout's own secret; worthless when the rollout has ended."""
    model: str

    @property
    def root_url(self) -> str:
        """The base URL without `/v1`, as Anthropic's SDK wants it."""
        return self.base_url.removesuffix("/v1")


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Where the program finds tools: an MCP server over streamable HTTP."""

    name: str
    """What the environment calls it; the model sees the names of its tools only."""
    url: str
    """As seen from inside the runtime. It may hold a secret of this rollout: not for arguments, not for logs."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """To be sent with every request, for servers that are not ours."""


class Speaker(Protocol):
    """The simulated user of one rollout, for a harness that holds the conversation."""

    async def respond(self) -> str | None:
        """What the user says to the model's last answer, which called no tool; None = the conversation is over.

        To be asked once for each such answer. The user knows the conversation from the trace.

        Raises:
            HarnessError: The model has given no answer since the user spoke last.
            UserError: The user failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """All that a harness needs for one rollout."""

    endpoint: Endpoint
    messages: Sequence[Message]
    """How the conversation starts, system prompt included."""
    task: Task
    runtime: Runtime
    prompt_file: str | None = None
    """Path, inside the runtime, of a file that holds `prompt`; None for a harness that needs none."""
    tools: Mapping[str, ToolServer] = field(default_factory=dict[str, ToolServer])
    """The tool servers by name; empty unless the harness `supports_tools`."""
    user: Speaker | None = None
    """Who speaks after the model has; None unless the harness `supports_user` and the task has one."""

    @property
    def prompt(self) -> str:
        """The text of the user's opening messages."""
        return "\n\n".join(message.text for message in self.messages if message.role == "user")

    @property
    def system_prompt(self) -> str | None:
        """The text of the system message; None when there is none."""
        return next((message.text for message in self.messages if message.role == "system"), None)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables that SDKs read, for a program that is started in the runtime."""
        endpoint = self.endpoint
        return {
            "OPENAI_BASE_URL": endpoint.base_url,
            "OPENAI_API_BASE": endpoint.base_url,
            "OPENAI_API_KEY": endpoint.api_key,
            "OPENAI_MODEL": endpoint.model,
            "ANTHROPIC_BASE_URL": endpoint.root_url,
            "ANTHROPIC_API_BASE": endpoint.root_url,
            "ANTHROPIC_API_KEY": endpoint.api_key,
            "ANTHROPIC_MODEL": endpoint.model,
        }


class Harness(Settings):
    """Subclass it and write `run`. Fields are its configuration: `--harness.NAME VALUE`."""

    supports_tools: ClassVar[bool] = False
    """Whether it can hand tools to the model."""
    supports_user: ClassVar[bool] = False
    """Whether it can go on with a conversation after the model has spoken."""
    tools_hint: ClassVar[str] = "such as chat"
    """What to do when it can't hand tools to the model, and the environment has some."""
    user_hint: ClassVar[str] = "such as chat"
    """What to do when it can't go on, and tasks have a user."""
    needs_prompt_file: ClassVar[bool] = True
    """Whether `job.prompt_file` is written; a harness that doesn't read it saves the time."""

    id: str = ""
    """What it was named by: an id, the path of a file, or `module:Class`."""
    runtime: SubprocessSettings = SubprocessSettings()
    """The box its program runs in."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        refuse_fields(cls, RESERVED)

    def mistakes(self) -> list[Mistake]:
        """What keeps it from running and can be known before anything is started."""
        return []

    def accepts_tools(self) -> bool:
        """Whether it can hand tools to the model, as it is configured."""
        return self.supports_tools

    def accepts_user(self) -> bool:
        """Whether it can go on with a conversation, as it is configured."""
        return self.supports_user

    def record(self) -> Mapping[str, Any]:
        """What a trace says about it, as plain data; asked once per run, inside `serving`."""
        return _masked(self.model_dump(mode="json"))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Holds what all rollouts of a run share; entered once, before the first of them."""
        yield

    async def setup(self, runtime: Runtime) -> None:
        """Prepare one rollout's runtime, after the task's own setup."""

    async def run(self, job: Job) -> ProgramResult | None:
        """Solve one task; every model call goes to `job.endpoint`.

        Returns:
            How the program ended; None, or exit code 0, is success. A failure is recorded with the program's stderr.

        Raises:
            HarnessError: It failed. Any other exception is recorded as one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no run method")


def _masked(data: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what variables with the name of a secret hold, unless it is filled in later."""
    for group in (data, data["runtime"]):
        for name, value in group.get("variables", {}).items():
            if _SECRET.search(name) and not value.startswith("{"):
                group["variables"][name] = MASK
    return data
