"""The messages of one rollout as a tree: a message is stored once, and a path from the root is what the model saw."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vfx.messages import Message, ToolCall

__all__ = ["MessageGraph", "Node", "message_hash"]


HASH_BYTES = 16


@dataclass(slots=True)
class Node:
    """One message and what it follows."""

    message: Message
    parent: int | None
    """Index of the node before it; None for the first message of a conversation."""
    sampled: bool
    """True when the evaluated model wrote it."""


class MessageGraph:
    """Append-only. Conversations that begin alike share nodes; where they differ they branch."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._children: dict[tuple[int | None, bytes], int] = {}

    def commit(self, prompt: Sequence[Message], completions: Sequence[Message], *, tools: Any = None) -> list[int]:
        """Add one turn: the prompt, of which known prefixes are reused, and the model's answers to it.

        Args:
            prompt: The messages that the model was sent, oldest first.
            completions: Its answers; each becomes a node of its own, also when it equals an earlier one.
            tools: The request's list of tools; conversations with different tools share no nodes.

        Returns:
            The indices of the answers' nodes.
        """
        parent: int | None = None
        salt = b"" if not tools else _digest(tools)
        for message in prompt:
            key = (parent, salt + message_hash(message))
            salt = b""
            known = self._children.get(key)
            parent = self._append(message, parent, key, sampled=False) if known is None else known
        return [
            self._append(answer, parent, (parent, salt + message_hash(answer)), sampled=True) for answer in completions
        ]

    def append(self, message: Message, parent: int | None, *, sampled: bool) -> int:
        """Add one node as it was recorded; returns its index. Reading needs no look-up of prefixes."""
        self.nodes.append(Node(message, parent, sampled))
        return len(self.nodes) - 1

    def _append(self, message: Message, parent: int | None, key: tuple[int | None, bytes], *, sampled: bool) -> int:
        index = len(self.nodes)
        self.nodes.append(Node(message, parent, sampled))
        # Of equal answers to one prompt the latest is the one that a program goes on from.
        self._children[key] = index
        if sampled and message.reasoning:
            # Most programs send an answer back without the reasoning that came with it.
            self._children[parent, key[1][:-HASH_BYTES] + message_hash(replace(message, reasoning=None))] = index
        return index

    def path(self, leaf: int) -> list[Message]:
        """The messages from the root to node `leaf`."""
        return [self.nodes[index].message for index in self.ancestry(leaf)][::-1]

    def ancestry(self, index: int | None) -> Iterator[int]:
        """Node `index` and those above it, up to the root."""
        while index is not None:
            yield index
            index = self.nodes[index].parent

    def leaves(self) -> list[int]:
        """Indices of the nodes that nothing follows, in the order in which they were added: one per branch."""
        parents = {node.parent for node in self.nodes}
        return [index for index in range(len(self.nodes)) if index not in parents]


def message_hash(message: Message) -> bytes:
    """Identity of a message across processes: what round-trips through a prompt.

    None and "" are equal contents; arguments that are JSON compare by value.

    Returns:
        16 bytes.
    """
    return _digest(
        [
            message.role,
            message.content or "",
            message.reasoning or "",
            message.refusal or "",
            message.name or "",
            message.tool_call_id or "",
            [_call_identity(call) for call in message.tool_calls],
        ]
    )


def _call_identity(call: ToolCall) -> list[Any]:
    arguments: Any = call.arguments
    if call.type == "function":
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = call.arguments
    return [call.id, call.name, arguments]


def _digest(value: Any) -> bytes:
    # ASCII escapes also carry lone surrogates, which models do produce.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.blake2b(text.encode("ascii"), digest_size=HASH_BYTES).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return list(value)
