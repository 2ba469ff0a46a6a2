"""One piece of work: its data are fields, its behaviour methods."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, to_jsonable_python

from vfx.authoring.any_text import with_any_text
from vfx.authoring.hooks import LIFECYCLE_HOOKS, Hook, HookKind, HookTable, hook_table, is_hook, lifecycle_hook
from vfx.authoring.names import refuse_fields
from vfx.messages import Message
from vfx.settings import Settings

__all__ = ["Prompt", "Task", "TaskResources", "TaskTimeouts"]

Prompt = str | tuple[dict[str, Any], ...] | None
"""Text (one user message), messages in the form of chat completions, or None when nobody speaks first."""

RESERVED = frozenset({*LIFECYCLE_HOOKS, "key", "data", "messages", "hooks", "use_hooks", "toolsets", "user", "state"})


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


class TaskResources(Settings):
    """What a task's programs may use; None = the run's."""

    memory: float | None = Field(default=None, gt=0)
    """Gigabytes (10^9 bytes) for a program and its children; None = the run's `--harness.runtime.memory`."""
    cpu_seconds: float | None = Field(default=None, gt=0)
    """CPU time of a program and its children in seconds; None = the run's `--harness.runtime.cpu-seconds`."""


class Task(BaseModel):
    """Subclass it: fields are the task's data, frozen and stored with every trace; methods are its hooks.

    Hooks are plain or async methods that ask for what they need by parameter name (`trace`, `runtime`, `task`):
    `setup` before the program, `finalize` after it, those marked with `vfx.reward`, `vfx.metric`, `vfx.stop`, and
    `vfx.group_reward`, which gets `traces`. `check` tells `vfx validate` whether the task's own solution is right.
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
    resources: TaskResources = TaskResources()
    """Bounds on what this task's programs use."""
    tags: tuple[str, ...] = ()
    """Free labels."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base) if is_hook(vars(base)[name])}
        refuse_fields(cls, RESERVED | inherited)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, not when a rollout runs."""
        super().__pydantic_init_subclass__(**kwargs)
        for hook in (hook for hooks in hook_table(cls).values() for hook in hooks):
            if hook.name in RESERVED or hasattr(Task, hook.name):
                raise TypeError(f"{cls.__name__}.{hook.name}: no {hook.kind} can have this name: vfx uses it")
        for name in LIFECYCLE_HOOKS:
            lifecycle_hook(cls, name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Text as Python has it: data sets hold lone surrogates, which pydantic's own text refuses."""
        return with_any_text(handler(source))

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

    def hooks(self, kind: HookKind) -> tuple[Hook, ...]:
        """The hooks of one kind: those of the class, and those that were configured for the run."""
        return self._hooks[kind]

    def use_hooks(self, table: HookTable) -> None:
        """Use these in place of the class's own hooks."""
        vars(self)["_hooks"] = table

    @cached_property
    def _hooks(self) -> HookTable:
        return hook_table(type(self))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, without what was computed from the fields of this one."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("data", "key"):
            vars(copy).pop(name, None)
        return copy

    def __getstate__(self) -> dict[Any, Any]:
        # What is computed follows from the fields, and configured hooks need not be known where this is read.
        state = super().__getstate__()
        fields = {name: value for name, value in state["__dict__"].items() if name in type(self).model_fields}
        return {**state, "__dict__": fields}

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
