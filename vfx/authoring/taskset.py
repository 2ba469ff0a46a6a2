"""A collection of tasks: its configuration are fields, `load` gives the tasks."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from types import GenericAlias
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

from pydantic import Field, create_model, model_validator

from vfx.authoring.configured import TaskSettings
from vfx.authoring.names import refuse_fields
from vfx.authoring.task import Task
from vfx.authoring.tool_settings import ToolSettings, tool_settings
from vfx.authoring.toolset import Toolsets, named_toolsets
from vfx.settings import Settings

__all__ = ["Taskset"]

TaskT = TypeVar("TaskT", bound=Task)

RESERVED = frozenset({"load", "toolsets", "infinite", "default_harness", "user", "task", "task_type", "tools"})


class Taskset(Settings, Generic[TaskT]):
    """Subclass it and write `load`. Fields are its configuration: `words: int = 3` is `--taskset.words 3`."""

    infinite: ClassVar[bool] = False
    """Whether `load` gives tasks without end: a run of it needs -n."""
    default_harness: ClassVar[str] = "chat"
    """What solves its tasks when no harness is named."""
    task_type: ClassVar[type[Task]] = Task
    """The class of its tasks, as `Taskset[MyTask]` names it."""
    toolsets: ClassVar[Toolsets] = {}
    """Tool servers that all rollouts share, started once a run. Those of one rollout each are its task's."""

    id: str = ""
    """What the environment was named by: an id, the path of a file, or `module:Class`."""
    system_prompt: str | None = None
    """In place of the tasks' own system prompt; None = theirs."""
    system_prompt_file: Path | None = None
    """A UTF-8 text file to read the system prompt from; None = none."""

    task: TaskSettings = TaskSettings()
    """What every task gets: rewards, metrics and stops from outside its code, and bounds on its stages."""
    tools: ToolSettings = ToolSettings()
    """Tool servers that all rollouts share, by name."""

    def __class_getitem__(cls, item: Any) -> Any:
        """`Taskset[MyTask]` tells a subclass what its tasks are; elsewhere it is the class itself."""
        # An alias as a base leaves its arguments in `__orig_bases__`; as a type hint pydantic would not know it.
        return GenericAlias(cls, item) if isinstance(item, type) and issubclass(item, Task) else cls

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        refuse_fields(cls, RESERVED)
        for base in vars(cls).get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Task):
                    cls.task_type = argument
        cls._declare_tools()

    @classmethod
    def _declare_tools(cls) -> None:
        """Give the options `tools` and `task.tools` the fields of what is declared, before pydantic collects them."""
        for_all = named_toolsets(cls.__name__, cls.toolsets)
        for_each = named_toolsets(cls.task_type.__name__, cls.task_type.toolsets)
        if twice := for_all.keys() & for_each.keys():
            raise TypeError(f"{cls.__name__}: a shared and a rollout's own tool server are both named {min(twice)}")
        if for_all or "toolsets" in vars(cls):
            cls._set_option("tools", tool_settings(cls.__name__, for_all))
        fields: dict[str, Any] = {}
        if for_each:
            fields["tools"] = (tool_settings(cls.task_type.__name__, for_each), ...)
        if cls.task_type.user is not None:
            fields["user"] = (cls.task_type.user, Field(description="Who speaks after the model has."))
        if fields:
            cls._set_option("task", create_model("TaskSettings", __base__=TaskSettings, **fields))

    @classmethod
    def _set_option(cls, name: str, model: type[Settings]) -> None:
        cls.__annotations__ = {**inspect.get_annotations(cls), name: model}
        setattr(cls, name, Field(default_factory=lambda: model.model_validate({})))

    @model_validator(mode="before")
    @classmethod
    def _with_tools(cls, data: Any) -> Any:
        # A field that a tool server requires is then missed by its own name.
        return {"tools": {}, "task": {}, **cast("dict[str, Any]", data)} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _one_system_prompt(self) -> "Taskset[TaskT]":
        if self.system_prompt is not None and self.system_prompt_file is not None:
            raise ValueError("system_prompt and system_prompt_file: give one of them")
        return self

    def load(self) -> Iterable[TaskT]:
        """The tasks, in a fixed order. Called once a run, in a thread; a generator is read as far as needed."""
        raise NotImplementedError(f"{type(self).__name__} has no load method")
