"""The trace of one rollout, and the JSON record that a run keeps of it.

Append-only at the granularity of a turn while the rollout runs; rewards and metrics come at its end.
"""

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vfx.errors import ProviderError, RolloutError
from vfx.messages import Message, Usage
from vfx.redaction import redact
from vfx.trace.graph import MessageGraph, Node

__all__ = [
    "SCHEMA_VERSION",
    "Agent",
    "Call",
    "ErrorRecord",
    "Rewrite",
    "Score",
    "SideCall",
    "Span",
    "TaskRef",
    "Trace",
    "encode_record",
    "state_data",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Span:
    """When something began and ended, in seconds since the epoch; `end` is None while it goes on."""

    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class TaskRef:
    """The task of a trace, as data."""

    type: str
    key: str
    occurrence: int
    """0 for the first task with this key, 1 for the next equal one, ..."""
    data: Mapping[str, Any]
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """Who was evaluated."""

    model: str
    sampling: Mapping[str, Any]
    harness: Mapping[str, Any]


@dataclass(slots=True)
class ErrorRecord:
    """One error, by the boundary it crossed."""

    kind: str
    message: str
    status: int | None = None
    """HTTP status of a provider's answer; None when there was none."""
    fatal: str | None = None
    """Set when every other rollout would fail for the same reason."""
    traceback: str | None = None
    """Where foreign code failed; None when the message says it all."""

    @classmethod
    def of(cls, error: RolloutError) -> "ErrorRecord":
        """The record of `error`, without any secret known to this process."""
        cause = error.__cause__
        lines = None
        if cause is not None and not isinstance(error, ProviderError):
            lines = redact("".join(traceback.format_exception(cause, limit=-8)))
        return cls(error.kind, redact(str(error)), getattr(error, "status", None), error.fatal, lines)


@dataclass(slots=True)
class Call:
    """One exchange with the provider, whether it became a turn or failed."""

    model: str | None
    sampling: Mapping[str, Any]
    endpoint: str
    span: Span
    nodes: Sequence[int] = ()
    """Nodes of the answers; empty when the call failed."""
    finish_reasons: Sequence[str | None] = ()
    usage: Usage = field(default_factory=Usage)
    attempts: int = 1
    """Requests that were sent upstream for this one call."""
    waited: float = 0.0
    """Seconds spent waiting because the provider asked for it or had failed."""
    first_byte: float | None = None
    """Seconds from the start until the first byte of the answer; None when none came."""
    error: ErrorRecord | None = None
    partial: str | None = None
    """What had arrived of a stream that broke off."""
    notes: Sequence[str] = ()
    """What the trace can't tell of it, such as messages that only the provider knows."""
    taped: str | None = None
    """The exchange of a tape that the answer was replayed from or recorded as, such as `3f9a1c77#12`; None = none."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What an intercept hook made of a message."""

    hook: str
    direction: str
    """`request`: the model was sent `after`; `response`: the program was. The graph has what the model saw and said."""
    before: Message
    after: Message


@dataclass(frozen=True, slots=True)
class SideCall:
    """One exchange with a model that is not evaluated: a judge's, or a simulated user's. Its tokens count apart."""

    purpose: str
    """`judge` or `user`."""
    name: str
    """Which judge, or which user."""
    model: str
    endpoint: str
    span: Span
    messages: Sequence[Message]
    """What it was asked."""
    reply: Message | None = None
    """What it answered; None when it gave no answer."""
    usage: Usage = field(default_factory=Usage)
    attempts: int = 1
    """Requests that were sent for it."""
    error: ErrorRecord | None = None
    """Why there is no answer, or none that could be used."""
    taped: str | None = None
    """See `Call.taped`."""


@dataclass(frozen=True, slots=True)
class Score:
    """One reward. A None score means: it should have been computed and was not."""

    score: float | None
    weight: float = 1.0


class Trace:
    """What one rollout said, did, cost and earned."""

    def __init__(self, *, id: str, task: TaskRef, rollout: int, agent: Agent, attempt: int = 0) -> None:
        self.id = id
        self.task = task
        self.rollout = rollout
        """Number of this rollout among those of its task, from 0."""
        self.attempt = attempt
        """0 for the first try, one more for each retry of the rollout."""
        self.agent = agent
        self.graph = MessageGraph()
        self.calls: list[Call] = []
        self.rewrites: list[Rewrite] = []
        """What intercept hooks changed, in order."""
        self.side_calls: list[SideCall] = []
        """What judges and simulated users asked models, in order."""
        self.state: Any = None
        """The task's `state_type`, one for each rollout, as its tools left it; None when the task has none."""
        self.rewards: dict[str, Score] = {}
        self.metrics: dict[str, float | None] = {}
        self.info: dict[str, Any] = {}
        """Free for hooks and harnesses: anything JSON can hold."""
        self.errors: list[ErrorRecord] = []
        self.stop_condition: str | None = None
        """Which limit or stop ended the conversation; None when the program ended by itself."""
        self.timing: dict[str, Span] = {}

    @property
    def taped(self) -> list[str]:
        """The exchanges of tapes that its answers came from or were recorded as."""
        return [call.taped for call in (*self.calls, *self.side_calls) if call.taped is not None]

    @property
    def nodes(self) -> list[Node]:
        """Every message, in the order of arrival."""
        return self.graph.nodes

    @property
    def branches(self) -> list[list[Message]]:
        """Every conversation, oldest first; sub-agents and rewritten histories are branches of their own."""
        return [self.graph.path(leaf) for leaf in self.graph.leaves()]

    @property
    def messages(self) -> list[Message]:
        """The final branch: the conversation that the last answer ended. Empty before the first turn."""
        last = next((call.nodes[0] for call in reversed(self.calls) if call.nodes), None)
        return [] if last is None else self.graph.path(last)

    @property
    def assistant_messages(self) -> list[Message]:
        """The messages of the final branch that have the assistant's role."""
        return [message for message in self.messages if message.role == "assistant"]

    @property
    def tool_messages(self) -> list[Message]:
        """The tool results of the final branch."""
        return [message for message in self.messages if message.role == "tool"]

    @property
    def last_reply(self) -> str:
        """The text of the model's last answer; "" when it gave none."""
        last = next((call.nodes[0] for call in reversed(self.calls) if call.nodes), None)
        return "" if last is None else self.nodes[last].message.text

    @property
    def transcript(self) -> str:
        """The final branch as text, one `role: text` paragraph a message."""
        return "\n\n".join(f"{message.role}: {message.text}" for message in self.messages)

    @property
    def num_turns(self) -> int:
        """How many exchanges gave an answer."""
        return sum(1 for call in self.calls if call.nodes)

    @property
    def usage(self) -> Usage:
        """Tokens of all exchanges as billed; a count is None when no exchange told it."""
        return sum((call.usage for call in self.calls), Usage())

    @property
    def reward(self) -> float | None:
        """The weighted sum of the rewards; None when the rollout is errored, or there are none."""
        if self.errors or not self.rewards or any(reward.score is None for reward in self.rewards.values()):
            return None
        return math.fsum(reward.weight * (reward.score or 0.0) for reward in self.rewards.values())

    def to_record(self) -> dict[str, Any]:
        """The record as plain data, in the form that `traces.jsonl` keeps."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "task": _fields(self.task),
            "rollout": self.rollout,
            "attempt": self.attempt,
            "agent": _fields(self.agent),
            "reward": self.reward,
            "rewards": {name: _fields(score) for name, score in self.rewards.items()},
            "metrics": self.metrics,
            "stop_condition": self.stop_condition,
            "errors": [_fields(error) for error in self.errors],
            "num_turns": self.num_turns,
            "usage": _fields(self.usage),
            "nodes": [
                {"parent": node.parent, "sampled": node.sampled, "message": _message(node.message)}
                for node in self.nodes
            ],
            "calls": [
                _fields(call)
                | {
                    "span": _fields(call.span),
                    "usage": _fields(call.usage),
                    "error": call.error and _fields(call.error),
                }
                for call in self.calls
            ],
            "rewrites": [
                _fields(rewrite) | {"before": _message(rewrite.before), "after": _message(rewrite.after)}
                for rewrite in self.rewrites
            ],
            "side_calls": [
                _fields(call)
                | {
                    "span": _fields(call.span),
                    "messages": [_message(message) for message in call.messages],
                    "reply": call.reply and _message(call.reply),
                    "usage": _fields(call.usage),
                    "error": call.error and _fields(call.error),
                }
                for call in self.side_calls
            ],
            "state": state_data(self.state),
            "info": self.info,
            "timing": {name: _fields(span) for name, span in self.timing.items()},
        }


def encode_record(record: Mapping[str, Any]) -> bytes:
    r"""One line of strict JSON in UTF-8, without the line's end.

    Lone surrogates, which UTF-8 can't carry, stay `\udXXX` escapes and read back as they were.

    Raises:
        ValueError: A number is not finite, or a structure holds itself.
        PydanticSerializationError: A value has no JSON form (a ValueError too).
    """
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except UnicodeEncodeError:
        return json.dumps(record, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def state_data(state: Any) -> Any:
    """A rollout's state as data that its class takes back."""
    # Hooks may have put anything into its lists and mappings: it is told as it is, and refused when it is read.
    return state.model_dump(round_trip=True, warnings=False) if isinstance(state, BaseModel) else state


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return to_jsonable_python(value)


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _message(message: Message) -> dict[str, Any]:
    """Only what is set, so that a record of plain text stays plain."""
    fields = _fields(message)
    if message.tool_calls:
        fields["tool_calls"] = [_fields(call) for call in message.tool_calls]
    return {name: value for name, value in fields.items() if name in ("role", "content") or value}
