"""What a rollout's tools, users, stops and rewards share while it runs."""

from pydantic import BaseModel, ConfigDict

__all__ = ["State"]


class State(BaseModel):
    """Subclass it, give every field a default, and name it as a task's `state_type`.

    Each rollout starts with one of its own. Its tool servers read and write it through the interception, which refuses
    what does not fit; hooks ask for it by the parameter name `state`; the trace keeps what it was at the end.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)
