"""A streamed response, put together from its bytes for the trace.

The terminal event carries the whole response. Some providers leave its output out; it is then taken from the events of
the items, whole or in pieces.

Source: OpenAI API reference, "Responses: Streaming events".
"""

from typing import Any

from vfx.dialects.base import TypedEvents
from vfx.dialects.fields import as_list, error_words, join_pieces, require_list, require_object
from vfx.dialects.responses import read_answer, read_response
from vfx.messages import Completion

__all__ = ["ResponsesAssembler"]

_ENDINGS = {"response.completed": "completed", "response.incomplete": "incomplete"}
_FAILURES = frozenset({"response.failed", "response.cancelled"})
# What is streamed in pieces: the event's name, the field of the whole text in its `done`, the index among its like.
_PIECES = {
    "output_text": ("text", "content_index"),
    "refusal": ("refusal", "content_index"),
    "function_call_arguments": ("arguments", ""),
    "custom_tool_call_input": ("input", ""),
    "mcp_call_arguments": ("arguments", ""),
    "code_interpreter_call_code": ("code", ""),
    "reasoning_summary_text": ("text", "summary_index"),
    "reasoning_text": ("text", "content_index"),
}


class _ItemDraft:
    """One output item, as far as it has come."""

    def __init__(self) -> None:
        self.item: dict[str, Any] = {}
        self.is_whole = False
        self._pieces: dict[tuple[str, int], list[str]] = {}

    def put(self, name: str, fields: dict[str, Any], *, is_delta: bool) -> None:
        whole, index_name = _PIECES[name]
        index = fields.get(index_name, 0)
        text = fields.get("delta" if is_delta else whole)
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected text, got {type(text).__name__}")  # noqa: TRY004
        pieces = self._pieces.setdefault((name, index if isinstance(index, int) else 0), [])
        if not is_delta:
            pieces.clear()
        pieces.append(text)

    def build(self) -> dict[str, Any]:
        if self.is_whole:
            return self.item
        item = dict(self.item)
        content: list[dict[str, Any]] = []
        for (name, _), pieces in sorted(self._pieces.items(), key=lambda entry: entry[0][1]):
            text = join_pieces(pieces)
            if name == "output_text":
                content.append({"type": "output_text", "text": text})
            elif name == "refusal":
                content.append({"type": "refusal", "refusal": text})
            elif name == "reasoning_text":
                content.append({"type": "reasoning_text", "text": text})
            elif name == "reasoning_summary_text":
                item["summary"] = [*as_list(item.get("summary")), {"type": "summary_text", "text": text}]
            else:
                item[_PIECES[name][0]] = text
        return item | {"content": content} if content else item


class ResponsesAssembler(TypedEvents):
    """`response.completed` and `response.incomplete` are the terminal events of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self._response: dict[str, Any] = {}
        self._items: dict[int | str, _ItemDraft] = {}

    def _take_typed(self, kind: str, fields: dict[str, Any]) -> None:
        if kind in _ENDINGS:
            self._end(fields, _ENDINGS[kind])
        elif kind in _FAILURES:
            self._take_state(fields)
            self._fail(self._response.get("error"))
        elif kind == "error" or fields.get("error"):
            self._fail(fields.get("error") or fields)
        elif fields.get("response") is not None:
            self._take_state(fields)
        elif kind.startswith("response."):
            self._take_part(kind.removeprefix("response."), fields)

    def _end(self, fields: dict[str, Any], status: str) -> None:
        response = require_object(fields.get("response"), "response")
        if not response:
            raise ValueError("response: the terminal event has none")
        # An output that can't be read is no answer, and is not to get in the way of what came before.
        output = require_list(response.get("output"), "response.output")
        read_answer(output)
        self._response |= {"status": status} | response
        self.is_done = True

    def _take_state(self, fields: dict[str, Any]) -> None:
        response = require_object(fields.get("response"), "response")
        self._response |= {name: value for name, value in response.items() if name != "output"}

    def _fail(self, error: Any) -> None:
        self.error = f"the provider sent an error: {error_words(error) if error else 'it does not say why'}"

    def _take_part(self, kind: str, fields: dict[str, Any]) -> None:
        if kind in ("output_item.added", "output_item.done"):
            draft = self._draft(fields)
            item = require_object(fields.get("item"), "item")
            read_answer([item])
            draft.item, draft.is_whole = item, kind.endswith("done")
            return
        name, _, stage = kind.rpartition(".")
        if name in _PIECES and stage in ("delta", "done"):
            self._draft(fields).put(name, fields, is_delta=stage == "delta")

    def _draft(self, fields: dict[str, Any]) -> _ItemDraft:
        index, item_id = fields.get("output_index"), fields.get("item_id")
        key = index if isinstance(index, int) else str(item_id)
        return self._items.setdefault(key, _ItemDraft())

    def completion(self) -> Completion:
        """The answer as far as it has come."""
        output = as_list(self._response.get("output")) or [draft.build() for _, draft in self._ordered()]
        is_ended = self._response.get("status") in _ENDINGS.values()
        status = {} if is_ended else {"status": None, "incomplete_details": None}
        return read_response(self._response | status | {"output": output})

    def _ordered(self) -> list[tuple[int | str, _ItemDraft]]:
        return sorted(self._items.items(), key=lambda entry: entry[0] if isinstance(entry[0], int) else 0)
