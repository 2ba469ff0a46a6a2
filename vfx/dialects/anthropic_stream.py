"""A streamed message, put together from its bytes for the trace.

Source: Anthropic API reference, "Streaming Messages".
"""

import json
from typing import Any

from vfx.dialects.anthropic import read_completion
from vfx.dialects.base import TypedEvents
from vfx.dialects.fields import as_list, as_text, error_words, join_pieces, require_object
from vfx.messages import Completion

__all__ = ["AnthropicAssembler"]

# By the type of a delta: the field of the block that it goes on with, and the type of a block that was never begun.
_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "thinking"),
    "input_json_delta": ("partial_json", "tool_use"),
    "compaction_delta": ("content", "compaction"),
}


class _Block:
    def __init__(self) -> None:
        self.begun: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    def put(self, delta: dict[str, Any]) -> None:
        kind = as_text(delta.get("type"))
        if kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        elif kind in _PIECES:
            name, block_type = _PIECES[kind]
            piece = delta.get(name)
            if not isinstance(piece, str | None):
                raise ValueError(f"{kind}: expected text, got {type(piece).__name__}")
            self.begun.setdefault("type", block_type)
            self._pieces.setdefault(name, []).append(piece or "")

    def build(self) -> dict[str, Any]:
        block = dict(self.begun)
        for name, pieces in self._pieces.items():
            if name == "partial_json":
                block["input"] = self._input(join_pieces(pieces))
            else:
                block[name] = join_pieces([str(block.get(name) or ""), *pieces])
        return block | ({"citations": [*as_list(block.get("citations")), *self._citations]} if self._citations else {})

    def _input(self, text: str) -> Any:
        if not text:
            return self.begun.get("input")
        if self.begun.get("type") == "tool_use":
            return text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text


class AnthropicAssembler(TypedEvents):
    """`message_stop` is the terminal event."""

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}

    def _take_typed(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "error" or fields.get("error"):
            self.error = f"the provider sent an error: {error_words(fields.get('error') or fields)}"
        elif kind == "message_start":
            self._message = dict(require_object(fields.get("message"), "message"))
            self._take_usage(self._message)
        elif kind == "content_block_start":
            self._block(fields).begun = require_object(fields.get("content_block"), "content_block")
        elif kind == "content_block_delta":
            self._block(fields).put(require_object(fields.get("delta"), "delta"))
        elif kind == "message_delta":
            self._message |= require_object(fields.get("delta"), "delta")
            self._take_usage(fields)
        elif kind == "message_stop":
            if not self._message:
                raise ValueError("message_stop: no message has begun")
            self.is_done = True

    def _block(self, fields: dict[str, Any]) -> _Block:
        index = fields.get("index")
        return self._blocks.setdefault(index if isinstance(index, int) else 0, _Block())

    def _take_usage(self, fields: dict[str, Any]) -> None:
        # Counts at the end are totals, and those of the input are often left out there.
        usage = require_object(fields.get("usage"), "usage")
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    def completion(self) -> Completion:
        """The answer as far as it has come."""
        begun = as_list(self._message.get("content"))
        content = [*begun, *(self._blocks[index].build() for index in sorted(self._blocks))]
        return read_completion(self._message | {"type": "message", "content": content, "usage": self._usage})
