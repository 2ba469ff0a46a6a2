"""The rollout whose call a tool server is serving."""

from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["Caller", "caller"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The rollout whose call a tool server is serving."""

    state_url: str
    """Where the rollout's state and task are."""
    state_key: str
    """The secret for them, which opens no model."""


caller: ContextVar[Caller] = ContextVar("caller")
"""Set in a tool server while it serves a call, in the threads of plain tools, too."""
