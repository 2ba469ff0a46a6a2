"""One piece of work: its data are fields, its behaviour methods."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from vfx.authoring.hooks import hooks_of, lifecycle_hook
from vfx.messages import Message
from vfx.settings import Settings

__all__ = ["Prompt", "Task", "TaskTimeouts"]

Prompt = str | tuple[dict[str, Any], ...] | None
"""Text (one user message), messages in the form of chat completions, or None when nobody speaks first."""

RESERVED = frozenset({"setup", "finalize", "check", "key", "messages", "toolsets", "user", "state"})


class TaskTimeouts(Settings):
    """A task's own bounds on its stages, in seconds; None = the run's."""

    setup: float | None = Field(default=None, gt=0)
    """Seconds for `setup`; None = the run's `--timeout.setup`."""
    rollout: float | None = Field(default=None, gt=0)
    """Seconds for one solve attempt; None = the run's `--timeout.rollout`."""
    finalize: float | None = Field(default=None, gt=0)
    """Seconds for `finalize`; None = the run's `--timeout.finalize`."""
    scoring: float | None = Field(default=None, gt=0)
    """Seconds for all rewards and metrics; None = the run's `--timeout.scoring`."""


class Task(BaseModel):
    """Subclass it: fields are the task's data, frozen and stored with every trace; methods are its hooks.

    Hooks are plain or async methods that ask for what they need by parameter name (`trace`, `runtime`, `task`):
    `setup` before the program, `finalize` after it, and those marked with `vfx.reward`, `vfx.metric`, `vfx.stop`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Prompt = None
    """What the program is asked to do: text, or messages."""
    system_prompt: str | None = None
    """Put before the prompt as a system message; None = none."""
    id: str | None = None
    """A name for people to select and find the task by."""
    name: str | None = None
    """A longer name, which `--include` and `--exclude` match too."""
    timeout: TaskTimeouts = TaskTimeouts()
    """Bounds on this task's stages."""
    tags: tuple[str, ...] = ()
    """Free labels."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, not when a rollout runs."""
        super().__pydantic_init_subclass__(**kwargs)
        if taken := RESERVED & cls.model_fields.keys():
            raise TypeError(f"{cls.__name__}: a field can't be named {', '.join(sorted(taken))}: hooks have that name")
        for kind in ("reward", "metric", "stop"):
            hooks_of(cls, kind)
        for name in ("setup", "finalize"):
            lifecycle_hook(cls, name)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The fields as plain data."""
        return self.model_dump()

    @cached_property
    def key(self) -> str:
        """Identity across runs: a hash of the content unless a subclass overrides it."""
        # ASCII escapes also carry lone surrogates.
        text = json.dumps(self.data, sort_keys=True, separators=(",", ":"), default=to_jsonable_python)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    def messages(self, system_prompt: str | None = None) -> Sequence[Message]:
        """How the conversation starts.

        Args:
            system_prompt: In place of the task's own; None = the task's.

        Raises:
            ValueError: The prompt holds something that is not a message.
        """
        system = self.system_prompt if system_prompt is None else system_prompt
        opening = [] if system is None else [Message("system", system)]
        if self.prompt is None:
            return opening
        if isinstance(self.prompt, str):
            return [*opening, Message("user", self.prompt)]
        return [*opening, *(_message(raw, index) for index, raw in enumerate(self.prompt))]


def _message(raw: Mapping[str, Any], index: int) -> Message:
    role = raw.get("role")
    if not isinstance(role, str):
        raise ValueError(f"prompt[{index}].role: expected text, got {role!r}")  # noqa: TRY004 - a value, not a type
    return Message(role, raw.get("content"), extra={k: v for k, v in raw.items() if k not in ("role", "content")})
