"""A collection of tasks: its configuration are fields, `load` gives the tasks."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import model_validator

from vfx.authoring.configured import TaskSettings
from vfx.authoring.names import refuse_fields
from vfx.authoring.task import Task
from vfx.settings import Settings

__all__ = ["Taskset"]

TaskT = TypeVar("TaskT", bound=Task)

RESERVED = frozenset({"load", "toolsets", "infinite", "default_harness", "user", "task"})


class Taskset(Settings, Generic[TaskT]):
    """Subclass it and write `load`. Fields are its configuration: `words: int = 3` is `--taskset.words 3`."""

    infinite: ClassVar[bool] = False
    """Whether `load` gives tasks without end: a run of it needs -n."""
    default_harness: ClassVar[str] = "chat"
    """What solves its tasks when no harness is named."""

    id: str = ""
    """What the environment was named by: an id, the path of a file, or `module:Class`."""
    system_prompt: str | None = None
    """In place of the tasks' own system prompt; None = theirs."""
    system_prompt_file: Path | None = None
    """A UTF-8 text file to read the system prompt from; None = none."""

    task: TaskSettings = TaskSettings()
    """What every task gets: rewards, metrics and stops from outside its code, and bounds on its stages."""

    def __class_getitem__(cls, item: Any) -> Any:
        """`Taskset[MyTask]` is for type checkers; at run time it is the class itself."""
        return cls

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, before pydantic warns of something else."""
        super().__init_subclass__(**kwargs)
        refuse_fields(cls, RESERVED)

    @model_validator(mode="after")
    def _one_system_prompt(self) -> "Taskset[TaskT]":
        if self.system_prompt is not None and self.system_prompt_file is not None:
            raise ValueError("system_prompt and system_prompt_file: give one of them")
        return self

    def load(self) -> Iterable[TaskT]:
        """The tasks, in a fixed order. Called once a run, in a thread; a generator is read as far as needed."""
        raise NotImplementedError(f"{type(self).__name__} has no load method")
