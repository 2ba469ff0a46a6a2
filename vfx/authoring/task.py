"""One piece of work: its data are fields, its behaviour methods."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, to_jsonable_python

from vfx.authoring.any_text import with_any_text
from vfx.authoring.hooks import LIFECYCLE_HOOKS, Hook, HookKind, HookTable, hook_table, is_hook, lifecycle_hook
from vfx.authoring.judge import JudgeReward, judge_hook
from vfx.authoring.judge_settings import JudgeModel, ReferenceJudge, RubricJudge, needs_answer
from vfx.authoring.names import refuse_fields
from vfx.authoring.state import State
from vfx.authoring.toolset import Toolsets, named_toolsets
from vfx.authoring.user import User
from vfx.messages import Message
from vfx.settings import Settings

__all__ = ["Prompt", "Task", "TaskResources", "TaskTimeouts", "answer_mistake", "task_hooks"]

Prompt = str | tuple[dict[str, Any], ...] | None
"""Text (one user message), messages in the form of chat completions, or None when nobody speaks first."""

RESERVED = frozenset({*LIFECYCLE_HOOKS, "key", "data", "messages", "hooks", "use_hooks"}) | frozenset(
    {"judges", "judge_model", "toolsets", "user", "state", "state_type"}
)


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

    Hooks are plain or async methods that ask for what they need by parameter name (`trace`, `runtime`, `task`, and
    `state` where there is one): `setup` before the program, `finalize` after it, those marked with `vfx.reward`,
    `vfx.metric`, `vfx.stop`, and `vfx.group_reward`, which gets `traces`. `check` tells `vfx validate` whether the
    task's own solution is right.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    toolsets: ClassVar[Toolsets] = {}
    """Tool servers that are started for each rollout; name the class as `Taskset[MyTask]`, so that they are known."""
    user: ClassVar[type[User] | None] = None
    """Who speaks after the model has; named as `Taskset[MyTask]`, too. None = the conversation ends with the answer."""
    state_type: ClassVar[type[State] | None] = None
    """What a rollout's tools, user, stops and rewards share; each rollout has one of its own. None = nothing."""

    judges: ClassVar[Sequence[ReferenceJudge | RubricJudge]] = ()
    """Models that score the reply, each as a reward of its own."""
    judge_model: ClassVar[JudgeModel] = JudgeModel()
    """What judges ask that name no model, and hooks that ask for `judge`."""

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
        task_hooks(cls)
        named_toolsets(cls.__name__, cls.toolsets)
        if cls.user is not None and lifecycle_hook(cls.user, "respond") is None:
            raise TypeError(f"{cls.__name__}.user: {cls.user.__name__} has no method respond")
        _check_state(cls)

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
        return task_hooks(type(self))

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


def _check_state(owner: type[Task]) -> None:
    """Check that what asks for a state is given one, and that a rollout can start with it.

    Raises:
        TypeError: It is not so.
    """
    state_type: Any = owner.state_type
    wanted = "name a subclass of vfx.State as its state_type"
    if state_type is None:
        hooks = [hook for hooks in hook_table(owner).values() for hook in hooks]
        hooks += [hook for name in LIFECYCLE_HOOKS if (hook := lifecycle_hook(owner, name))]
        if owner.user is not None:
            hooks += [hook for name in ("open", "respond") if (hook := lifecycle_hook(owner.user, name))]
        if asking := next((hook for hook in hooks if "state" in hook.parameters), None):
            raise TypeError(f"{owner.__name__}: {asking.name} asks for state, and the task has none: {wanted}")
    elif not (isinstance(state_type, type) and issubclass(state_type, State)):
        raise TypeError(f"{owner.__name__}.state_type: expected a subclass of vfx.State, got {state_type!r:.80}")
    else:
        try:
            state_type()
        except Exception as error:
            text = f"{owner.__name__}.state_type: the defaults of {state_type.__name__} fail: {error}"
            raise TypeError(text) from error
    for name, toolset in named_toolsets(owner.__name__, owner.toolsets).items():
        if toolset.state_type not in (State, state_type):
            other = "none" if state_type is None else state_type.__name__
            raise TypeError(
                f"{owner.__name__}.toolsets: {name} has the state_type {toolset.state_type.__name__}, and the task "
                f"{other}: name the same for both"
            )


@lru_cache(maxsize=1024)
def task_hooks(owner: type[Task]) -> HookTable:
    """The hooks of a task class by kind, its judges among the rewards.

    Raises:
        TypeError: A hook or a judge of the class can't be used.
    """
    table = hook_table(owner)
    names = [hook.name for kind in ("reward", "group_reward") for hook in table[kind]]
    judges: list[Hook] = []
    for index, judge in enumerate(owner.judges):
        where = f"{owner.__name__}.judges[{index}]"
        if not isinstance(cast("object", judge), ReferenceJudge | RubricJudge):
            raise TypeError(f"{where}: expected a vfx.ReferenceJudge or a vfx.RubricJudge, got {judge!r:.80}")
        hook = judge_hook(judge, where)
        if hook.name in names:
            raise TypeError(f"{where}: another reward is named {hook.name!r}: give it a name of its own")
        if what := answer_mistake(owner, hook):
            raise TypeError(f"{where}.answer_field: {what}")
        names.append(hook.name)
        judges.append(hook)
    return {**table, "reward": (*table["reward"], *judges)}


def answer_mistake(owner: type[Task], hook: Hook) -> str | None:
    """Why a judge can't be told the right answer by tasks of class `owner`; None when it can, or need not be."""
    if not isinstance(hook.function, JudgeReward):
        return None
    settings = hook.function.settings
    if not needs_answer(settings) or settings.answer_field in owner.model_fields:
        return None
    own = [name for name in owner.model_fields if name not in Task.model_fields]
    return f"{owner.__name__} has no field {settings.answer_field!r}; its own are: {', '.join(own) or 'none'}"


def _message(raw: Mapping[str, Any], index: int) -> Message:
    role = raw.get("role")
    if not isinstance(role, str):
        raise ValueError(f"prompt[{index}].role: expected text, got {role!r}")  # noqa: TRY004 - a value, not a type
    return Message(role, raw.get("content"), extra={k: v for k, v in raw.items() if k not in ("role", "content")})
