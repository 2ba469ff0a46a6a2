"""The shared state of a rollout at its start, and what a record makes of it."""

from vfx.authoring.state import State, read_state
from vfx.authoring.task import Task
from vfx.errors import ScoringError, TaskError, attributed
from vfx.trace.record import Trace

__all__ = ["fresh_state", "restore_state"]


def fresh_state(task: Task) -> State | None:
    """What a rollout of `task` starts with; None when its class has no `state_type`.

    Raises:
        TaskError: A default of the class could not be made.
    """
    with attributed(TaskError, "state"):
        return None if task.state_type is None else task.state_type()


def restore_state(task: Task, trace: Trace) -> None:
    """Give a trace that was read from a record its typed state again.

    Raises:
        ScoringError: The record has none, or one that no longer fits; the trace keeps what it had.
    """
    kind = task.state_type
    if kind is None or isinstance(trace.state, kind):
        return
    if trace.state is None:
        raise ScoringError(f"the record has no state, and {type(task).__name__} has the state_type {kind.__name__} now")
    try:
        trace.state = read_state(kind, trace.state)
    except ValueError as error:
        raise ScoringError(f"the recorded state no longer fits {kind.__name__}: {error}") from error
