"""A streamed chat completion, put together from its bytes for the trace. What a harness gets is never built here.

Source: OpenAI API reference, "Chat Completions: Streaming".
"""

import json
from typing import Any, cast

from vfx.dialects.base import StreamAssembler
from vfx.dialects.chat import read_message, read_usage
from vfx.dialects.fields import as_text, error_words, join_pieces, require_list, require_object
from vfx.dialects.sse import Event
from vfx.messages import Completion

__all__ = ["ChatAssembler"]

_DONE = "[DONE]"
# Sent once, and repeated whole by some providers.
_WHOLE = frozenset({"role", "name", "id", "type"})


class _Draft:
    """A JSON object whose texts and lists arrive in pieces."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str | list[Any]]] = {}
        self._whole: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        return self._whole.get(name)

    def put(self, name: str, value: Any) -> None:
        """Take the next part of field `name`."""
        if value is None:
            return
        if name in _WHOLE:
            # An empty one in a later part takes nothing back.
            if value or name not in self._whole:
                self._whole[name] = value
        elif isinstance(value, str | list):
            self._pieces.setdefault(name, []).append(cast("str | list[Any]", value))
        else:
            self._whole[name] = value

    def put_all(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            self.put(name, value)

    def text(self, name: str) -> str:
        """What has come of the text `name`."""
        return join_pieces([piece for piece in self._pieces.get(name, ()) if isinstance(piece, str)])

    def build(self) -> dict[str, Any]:
        """The object as far as it has come."""
        grown = {name: _assemble(pieces) for name, pieces in self._pieces.items()}
        return grown | self._whole


def _assemble(pieces: list[str | list[Any]]) -> str | list[Any]:
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return join_pieces(texts)
    # Some providers begin with parts (thoughts) and go on with plain text.
    parts = [[{"type": "text", "text": piece}] if isinstance(piece, str) else piece for piece in pieces]
    return [part for piece in parts for part in piece]


class _ToolCallDraft:
    def __init__(self) -> None:
        self._fields = _Draft()
        self._inner: dict[str, _Draft] = {}

    def is_another(self, part: dict[str, Any]) -> bool:
        """True when `part` begins a call of its own, though it carries the index of this one."""
        known, given = self._fields.get("id"), part.get("id")
        inner = part.get("function") or part.get("custom")
        return bool(known and given and known != given and isinstance(inner, dict) and cast("Any", inner).get("name"))

    def put(self, part: dict[str, Any]) -> None:
        for name, value in part.items():
            if isinstance(value, dict):
                self._inner.setdefault(name, _Draft()).put_all(cast("dict[str, Any]", value))
            elif name != "index":
                self._fields.put(name, value)

    def build(self) -> dict[str, Any]:
        return self._fields.build() | {name: draft.build() for name, draft in self._inner.items()}


class _Choice:
    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._message = _Draft()
        self._nested: dict[str, _Draft] = {}
        self._calls: list[_ToolCallDraft] = []
        self._call_at: dict[int, _ToolCallDraft] = {}

    def take(self, raw: dict[str, Any]) -> None:
        reason = raw.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        for name, value in require_object(raw.get("delta"), "delta").items():
            if name == "tool_calls":
                for part in require_list(value, name):
                    self._take_tool_call(require_object(part, name))
            elif name in ("audio", "function_call") and value is not None:
                self._nested.setdefault(name, _Draft()).put_all(require_object(value, name))
            elif name == "content" and value is not None:
                self._message.put(name, require_list(value, name) if not isinstance(value, str) else value)
            elif name == "role" and not isinstance(value, str | None):
                raise ValueError(f"role: expected text, got {type(value).__name__}")
            else:
                self._message.put(name, value)

    def _take_tool_call(self, part: dict[str, Any]) -> None:
        index = part.get("index")
        # Without an index each part is a whole call.
        call = self._call_at.get(index) if isinstance(index, int) else None
        if call is None or call.is_another(part):
            call = _ToolCallDraft()
            self._calls.append(call)
            if isinstance(index, int):
                self._call_at[index] = call
        call.put(part)

    @property
    def text(self) -> str:
        return self._message.text("content")

    def message(self) -> dict[str, Any]:
        message = {"content": None} | self._message.build()
        message |= {name: draft.build() for name, draft in self._nested.items()}
        return message | ({"tool_calls": [call.build() for call in self._calls]} if self._calls else {})


class ChatAssembler(StreamAssembler):
    """The answer of one or more choices; `[DONE]` is the terminal event."""

    def __init__(self, choices: int = 1) -> None:
        """See the class.

        Args:
            choices: How many the request asked for.
        """
        super().__init__()
        self._asked = choices
        self._choices: dict[int, _Choice] = {}
        self._usage: Any = None
        self._model: str | None = None
        self._id: str | None = None

    @property
    def is_complete(self) -> bool:
        """True when `[DONE]` has come, or each choice that was asked for has its finish reason; and no error came."""
        choices = self._choices.values()
        if self.error is not None or not choices:
            return False
        return self.is_done or (len(choices) >= self._asked and all(choice.finish_reason for choice in choices))

    @property
    def text(self) -> str:
        """The text of the first choice as far as it has come."""
        return self._choices[min(self._choices)].text if self._choices else ""

    def _take(self, event: Event) -> None:
        data = event.data.strip()
        if data == _DONE:
            self.is_done = True
        if not data or data == _DONE:
            return
        fields = require_object(json.loads(data), "event")
        error = fields.get("error") or (fields if event.type == "error" else None)
        if error:
            self.error = f"the provider sent an error: {error_words(error)}"
            return
        self._usage = fields.get("usage") or self._usage
        self._model = as_text(fields.get("model")) or self._model
        self._id = as_text(fields.get("id")) or self._id
        for raw in require_list(fields.get("choices"), "choices"):
            choice = require_object(raw, "choices")
            index = choice.get("index")
            self._choices.setdefault(index if isinstance(index, int) else 0, _Choice()).take(choice)

    def completion(self) -> Completion:
        """The answer as far as it has come."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return Completion(
            messages=tuple(read_message(choice.message()) for choice in choices),
            finish_reasons=tuple(choice.finish_reason for choice in choices),
            usage=read_usage(self._usage),
            model=self._model,
            id=self._id,
        )
