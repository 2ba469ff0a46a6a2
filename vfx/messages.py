"""Provider-neutral conversation: messages, tool calls, usage, and the sampling settings an eval imposes.

These are on the path of every turn, so they are slotted records without validation; a dialect builds them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from vfx.settings import Settings

__all__ = ["Completion", "Content", "Message", "Role", "Sampling", "ToolCall", "Usage"]

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
Content = str | Sequence[Mapping[str, Any]] | None
"""Text, or content parts as the dialect gives them, or None when there is none."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asked for."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: JSON for function tools, any text for custom ones."""
    type: str = "function"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a tool's result: the call it answers."""
    name: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that this version does not interpret, as the dialect gave them."""
    opaque: Sequence[Mapping[str, Any]] = ()
    """State that only the provider can read and programs send back: signatures of thoughts, encrypted thoughts."""

    @property
    def text(self) -> str:
        """The text of the content, parts joined; "" when there is none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part["text"]) for part in self.content or () if isinstance(part.get("text"), str))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one exchange as the provider billed them. None means that the provider did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of `input_tokens` that was read from the provider's cache."""
    reasoning_tokens: int | None = None
    """The part of `output_tokens` that was spent on reasoning."""

    def __add__(self, other: "Usage") -> "Usage":
        """The sum, in which unknown counts as nothing as long as one side is known."""
        return Usage(
            _plus(self.input_tokens, other.input_tokens),
            _plus(self.output_tokens, other.output_tokens),
            _plus(self.cached_tokens, other.cached_tokens),
            _plus(self.reasoning_tokens, other.reasoning_tokens),
        )


def _plus(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return left if right is None else right
    return left + right


@dataclass(frozen=True, slots=True)
class Completion:
    """What one exchange with a provider gave, as far as the trace needs it."""

    messages: tuple[Message, ...]
    """One per choice; usually one."""
    finish_reasons: tuple[str | None, ...]
    usage: Usage
    model: str | None = None
    """The model as the provider names it; None when it did not say."""
    id: str | None = None
    items: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What it holds, as the provider gave it and by the ids with which later requests may refer to it."""


class Sampling(Settings):
    """Sampling settings imposed on every call of the evaluated model; what is None is left to the program."""

    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; None = the program's own."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling mass; None = the program's own."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound on the tokens of one answer; None = the program's own."""
    seed: int | None = None
    """Seed passed to the provider; None = the program's own."""
    stop: tuple[str, ...] | None = None
    """Texts at which an answer ends; None = the program's own."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further keys put into every request body as they are, such as `--sampling.extra.top_k 40`."""
