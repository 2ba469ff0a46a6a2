"""A collection of tasks: its configuration are fields, `load` gives the tasks."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import model_validator

from vfx.authoring.task import Task
from vfx.settings import Settings

__all__ = ["Taskset"]

TaskT = TypeVar("TaskT", bound=Task)

RESERVED = frozenset({"load", "toolsets", "infinite", "user"})


class Taskset(Settings, Generic[TaskT]):
    """Subclass it and write `load`. Fields are its configuration: `words: int = 3` is `--taskset.words 3`."""

    id: str = ""
    """What the environment was named by: an id, the path of a file, or `module:Class`."""
    system_prompt: str | None = None
    """In place of the tasks' own system prompt; None = theirs."""
    system_prompt_file: Path | None = None
    """A UTF-8 text file to read the system prompt from; None = none."""

    def __class_getitem__(cls, item: Any) -> Any:
        """`Taskset[MyTask]` is for type checkers; at run time it is the class itself."""
        return cls

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made."""
        super().__pydantic_init_subclass__(**kwargs)
        if taken := RESERVED & cls.model_fields.keys():
            raise TypeError(f"{cls.__name__}: a field can't be named {', '.join(sorted(taken))}: vfx uses that name")

    @model_validator(mode="after")
    def _one_system_prompt(self) -> "Taskset[TaskT]":
        if self.system_prompt is not None and self.system_prompt_file is not None:
            raise ValueError("system_prompt and system_prompt_file: give one of them")
        return self

    def load(self) -> Iterable[TaskT]:
        """The tasks, in a fixed order. Called once a run, in a worker thread."""
        raise NotImplementedError(f"{type(self).__name__} has no load method")
