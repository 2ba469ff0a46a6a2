"""One answer as every dialect's provider could write it. The modules beside this one write it, whole or as events."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vfx.messages import Completion, Message

__all__ = ["ANTHROPIC_WORDS", "CHAT_WORDS", "RESPONSES_WORDS", "Answer", "Fields", "Writer", "finish_word", "words"]

Fields = dict[str, Any]

CHAT_WORDS, RESPONSES_WORDS, ANTHROPIC_WORDS = range(3)
# Why an answer ended, in the words of the three dialects.
_REASONS = (
    ("stop", "completed", "end_turn"),
    ("length", "max_output_tokens", "max_tokens"),
    ("tool_calls", "completed", "tool_use"),
    ("content_filter", "content_filter", "refusal"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be written."""

    completion: Completion
    id: str
    """Unique in the run; the ids that programs see are made from it."""
    usage_in_stream: Literal["event", "last", "none"] = "event"
    """Where a stream of chat completions tells the usage: in an event for it, with the last piece, or nowhere."""

    @property
    def message(self) -> Message:
        """The first choice, for dialects that have just one."""
        return self.completion.messages[0]


@dataclass(frozen=True, slots=True)
class Writer:
    """How one dialect writes it."""

    whole: Callable[[Answer], Fields]
    events: Callable[[Answer], list[Fields]]
    """The events of a stream, each with its type where the dialect has types."""
    is_typed: bool = True
    """Whether events have names; the others end with `[DONE]`."""

    def stream(self, answer: Answer) -> list[bytes]:
        """One piece an event."""
        if self.is_typed:
            return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in self.events(answer)]
        lines = [*map(json.dumps, self.events(answer)), "[DONE]"]
        return [f"data: {line}\n\n".encode() for line in lines]


def words(text: str) -> Sequence[str]:
    """The pieces in which a text is streamed; at least one."""
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]


def finish_word(answer: Answer, number: int, column: int) -> str | None:
    """Why choice `number` ended, in the words of a dialect; a word that no other dialect has stays as it is.

    Args:
        answer: What is to be written.
        number: Of the choice, from 0.
        column: `CHAT_WORDS`, `RESPONSES_WORDS` or `ANTHROPIC_WORDS`.
    """
    word = answer.completion.finish_reasons[number]
    rows = [row for row in _REASONS if word in row]
    if not rows or any(row[column] == word for row in rows):
        return word
    has_calls = bool(answer.completion.messages[number].tool_calls)
    fitting = (row for row in rows if (row[CHAT_WORDS] == "tool_calls") == has_calls)
    return next(fitting, rows[0])[column]
