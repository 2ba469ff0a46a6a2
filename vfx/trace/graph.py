"""The messages of one rollout as a tree: a message is stored once, and a path from the root is what the model saw.

Each turn repeats the conversation so far. What it repeats is recognised by comparing it with the prompts seen last, so
that only what is new is hashed and looked up.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from vfx.messages import Content, Message, ToolCall

__all__ = ["MessageGraph", "Node", "message_hash"]


HASH_BYTES = 16
# A text is made shorter before it is put into JSON: hashing lets other threads run, escaping does not.
LONG_TEXT = 1 << 16
# One for each sub-agent that is likely to be at work at the same time.
MAX_TRAILS = 8
MAX_PREPARED = 256
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


@dataclass(slots=True)
class Node:
    """One message and what it follows."""

    message: Message
    parent: int | None
    """Index of the node before it; None for the first message of a conversation."""
    sampled: bool
    """True when the evaluated model wrote it."""


@dataclass(slots=True, eq=False)
class _Trail:
    """A prompt that was committed, and where its messages are."""

    salt: bytes
    prompt: Sequence[Message]
    nodes: Sequence[int]
    is_exact: Sequence[bool]
    """Whether what equals a message also has its hash: to Python, but not in JSON, 1 equals true."""

    def shared_with(self, prompt: Sequence[Message]) -> int:
        """How many messages `prompt` begins with that are this one's."""
        count = 0
        for ours, theirs, is_exact in zip(self.prompt, prompt, self.is_exact, strict=False):
            if ours is not theirs and not (is_exact and ours == theirs):
                break
            count += 1
        return count


class MessageGraph:
    """Append-only. Conversations that begin alike share nodes; where they differ they branch."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._children: dict[tuple[int | None, bytes], int] = {}
        self._trails: list[_Trail] = []
        """The latest last."""
        self._prepared: dict[int, tuple[Message, bytes]] = {}
        """Long messages with their hashes, by their ids; the latest last."""

    def prepare(self, messages: Sequence[Message]) -> None:
        """Hash long messages before they are committed: from a thread, so that `commit` takes no time.

        It does nothing for messages (the same objects) that it has prepared before.
        """
        for message in messages:
            if id(message) not in self._prepared and _is_long(message.content):
                self._prepared[id(message)] = message, message_hash(message)
        while len(self._prepared) > MAX_PREPARED:
            self._prepared.pop(next(iter(self._prepared)), None)

    def _hash(self, message: Message) -> bytes:
        prepared = self._prepared.get(id(message))
        return message_hash(message) if prepared is None else prepared[1]

    def commit(self, prompt: Sequence[Message], completions: Sequence[Message], *, tools: Any = None) -> list[int]:
        """Add one turn: the prompt, of which known prefixes are reused, and the model's answers to it.

        Args:
            prompt: The messages that the model was sent, oldest first.
            completions: Its answers; each becomes a node of its own, also when it equals an earlier one.
            tools: The request's list of tools; conversations with different tools share no nodes.

        Returns:
            The indices of the answers' nodes.
        """
        salt = (
            b""
            if not tools
            else _digest([_unmarked(tool) for tool in cast("list[Any]", tools)] if isinstance(tools, list) else tools)
        )
        parent, first = self._walk(prompt, salt)
        return [
            self._append(answer, parent, (parent, first + self._hash(answer)), sampled=True) for answer in completions
        ]

    def _walk(self, prompt: Sequence[Message], salt: bytes) -> tuple[int | None, bytes]:
        """Follow `prompt` and append what is new; returns its last node, and the salt if no message has taken it."""
        known, shared = self._longest_trail(prompt, salt)
        nodes = list(known.nodes[:shared]) if known else []
        is_exact = list(known.is_exact[:shared]) if known else []
        parent = nodes[-1] if nodes else None
        for message in prompt[shared:]:
            key = (parent, (b"" if nodes else salt) + self._hash(message))
            child = self._children.get(key)
            parent = self._append(message, parent, key, sampled=False) if child is None else child
            nodes.append(parent)
            is_exact.append(_has_no_numbers(message.content))
        if known is not None and shared == len(known.prompt):
            self._trails.remove(known)
        if nodes:
            self._trails.append(_Trail(salt, prompt, nodes, is_exact))
            del self._trails[:-MAX_TRAILS]
        return parent, b"" if nodes else salt

    def _longest_trail(self, prompt: Sequence[Message], salt: bytes) -> tuple[_Trail | None, int]:
        best: tuple[_Trail | None, int] = None, 0
        for trail in reversed(self._trails):
            shared = trail.shared_with(prompt) if trail.salt == salt else 0
            if shared > best[1]:
                best = trail, shared
            if shared == len(trail.prompt):
                break
        return best

    def append(self, message: Message, parent: int | None, *, sampled: bool) -> int:
        """Add one node as it was recorded; returns its index. Reading needs no look-up of prefixes."""
        self.nodes.append(Node(message, parent, sampled))
        return len(self.nodes) - 1

    def _append(self, message: Message, parent: int | None, key: tuple[int | None, bytes], *, sampled: bool) -> int:
        index = len(self.nodes)
        self.nodes.append(Node(message, parent, sampled))
        # Of equal answers to one prompt the latest is the one that a program goes on from.
        keys = [key]
        if sampled:
            keys += [(parent, key[1][:-HASH_BYTES] + message_hash(other)) for other in _as_sent_back(message)]
        for each in keys:
            if each in self._children:
                # From now on the same messages lead elsewhere.
                self._trails.clear()
            self._children[each] = index
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

    None and "" are equal contents, and so are a text and a list of that one text. Arguments that are JSON compare by
    value, and no arguments equal an empty object. Cache markers and what annotates a text do not count.

    Returns:
        16 bytes.
    """
    return _digest(
        [
            message.role,
            _shortened(_content_identity(message.content)),
            _shortened(message.reasoning or ""),
            message.refusal or "",
            message.name or "",
            message.tool_call_id or "",
            [_call_identity(call) for call in message.tool_calls],
            _shortened(message.opaque or ()),
        ]
    )


def _as_sent_back(message: Message) -> Iterator[Message]:
    """An answer as it looks when a program leaves out the thoughts, or what only the provider reads."""
    if message.reasoning:
        yield replace(message, reasoning=None)
    if message.opaque:
        yield replace(message, opaque=())
    if message.reasoning and message.opaque:
        yield replace(message, reasoning=None, opaque=())


def _content_identity(content: Content) -> str | list[Any]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_part_identity(part) for part in content]
    parts = [part for part in parts if part]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return parts or ""


def _part_identity(part: Mapping[str, Any]) -> Any:
    text = part.get("text")
    if isinstance(text, str) and part.get("type") in _TEXT_PARTS:
        return text
    return {name: value for name, value in _unmarked(part).items() if value is not None}


def _unmarked(value: Any) -> Any:
    """`value` without a cache marker, which programs move from one message to the next."""
    if not isinstance(value, Mapping):
        return value
    fields = cast("Mapping[str, Any]", value)
    return {name: item for name, item in fields.items() if name != "cache_control"}


def _shortened(value: Any) -> Any:
    """`value` with long texts replaced by what identifies them."""
    if isinstance(value, str):
        if len(value) < LONG_TEXT:
            return value
        return {"long": hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).hexdigest()}
    if isinstance(value, Mapping):
        return {name: _shortened(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, Sequence):
        return [_shortened(item) for item in cast("Sequence[Any]", value)]
    return value


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) >= LONG_TEXT
    if isinstance(value, Mapping):
        return any(map(_is_long, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, Sequence) and any(map(_is_long, cast("Sequence[Any]", value)))


def _has_no_numbers(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, Mapping):
        return all(map(_has_no_numbers, cast("Mapping[str, Any]", value).values()))
    return isinstance(value, Sequence) and all(map(_has_no_numbers, cast("Sequence[Any]", value)))


def _call_identity(call: ToolCall) -> list[Any]:
    arguments: Any = call.arguments
    if call.type == "function":
        try:
            arguments = json.loads(call.arguments or "{}")
            arguments = {} if arguments is None else arguments
        except (ValueError, RecursionError):
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
