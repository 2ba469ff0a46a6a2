"""The tasks that a taskset's `load` gives, one by one; what is wrong with it is said in the author's terms."""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from vfx.authoring.loading import describe_error
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.errors import ConfigError, Mistake

__all__ = ["load_tasks"]


def load_tasks(taskset: Taskset[Any]) -> Iterator[Task]:
    """Go through the tasks. May block: it runs the taskset's own code.

    Raises:
        ConfigError: `load` fails, or gives something else than tasks.
    """
    count = 0
    try:
        for task in _given(taskset):
            count += 1
            yield _checked(taskset, task, count)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        after = f", after {count} of them" if count else ""
        raise _wrong(taskset, f"its tasks can't be loaded{after}: {_described(taskset, error)}") from error


def _given(taskset: Taskset[Any]) -> Iterable[object]:
    name = type(taskset).__name__
    if cast("Any", type(taskset)).load is cast("Any", Taskset).load:
        raise _wrong(taskset, f"{name} has no load method: write one that gives its tasks")
    given = cast("object", taskset.load())
    if inspect.iscoroutine(given):
        given.close()
    if inspect.iscoroutine(given) or inspect.isasyncgen(given):
        raise _wrong(taskset, f"{name}.load() must be a plain method: write def in place of async def")
    # A model can be iterated, field by field, and so can text.
    if isinstance(given, Task | str) or not isinstance(given, Iterable):
        hint = "; yield it, or put it in a list" if isinstance(given, Task) else "; does it return them?"
        raise _wrong(taskset, f"{name}.load() must give tasks, as a list or with yield, got {_shown(given)}{hint}")
    return cast("Iterable[object]", given)


def _checked(taskset: Taskset[Any], task: object, number: int) -> Task:
    if not isinstance(task, Task):
        raise _wrong(taskset, f"load() must give vfx.Task instances, got {_shown(task)} as task {number}")
    if not isinstance(cast("object", task.key), str):
        raise _wrong(taskset, f"{type(task).__name__}.key must be text, got {_shown(task.key)} for task {number}")
    return task


def _wrong(taskset: Taskset[Any], what: str) -> ConfigError:
    return ConfigError(Mistake(what, taskset.id or type(taskset).__name__))


def _shown(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__}"


def _described(taskset: Taskset[Any], error: Exception | SystemExit) -> str:
    if isinstance(error, SystemExit):
        return f"load() calls sys.exit({'' if error.code is None else repr(error.code)})"
    source = inspect.getsourcefile(type(taskset))
    path = Path(source) if source else None
    text = describe_error(error, path)
    if not isinstance(error, ValidationError):
        return text
    # Without pydantic's own layout, which is several lines and a link for each.
    fields = (f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors(include_url=False))
    place = text.rpartition("(")[2] if text.endswith(")") else ""
    return f"{error.title} with {'; '.join(fields)}{f' ({place}' if place.startswith('line ') else ''}"
