"""The contract of a dialect: one record of pure functions, and the assembler of its streams.

Lenient on purpose: a provider's unknown labels and vendor fields are kept or passed over, never refused. A silent
stream is kept alive with the same comment in every dialect, since a comment is no event and all SDKs pass over it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vfx.dialects.fields import Json, as_text, require_object
from vfx.dialects.sse import Event, EventParser
from vfx.messages import Completion, Message, Sampling

__all__ = ["Dialect", "Earlier", "ReadSampling", "StreamAssembler", "TypedEvents", "WriteError"]


class StreamAssembler(ABC):
    """Builds the complete answer from the bytes of an event stream, cut anywhere, for the trace.

    What a program gets is never built here.
    """

    def __init__(self) -> None:
        self._events = EventParser()
        self.is_done = False
        """True once the terminal event has come."""
        self.error: str | None = None
        """Why this is no answer: an error that the provider sent, or an event that is malformed; None = all is well."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """True when what has come is a whole answer, by what the provider said itself; and no error came."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The text of the answer, of the first choice if there are several, as far as it has come."""

    @abstractmethod
    def completion(self) -> Completion:
        """The answer as far as it has come."""

    @abstractmethod
    def _take(self, event: Event) -> None:
        """Take one event.

        Raises:
            ValueError: It is malformed.
        """

    @property
    def is_between_events(self) -> bool:
        """True when a comment can follow the bytes so far."""
        return self._events.is_between_events

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the stream."""
        for event in self._events.feed(piece):
            if self.error is None and not self.is_done:
                try:
                    self._take(event)
                except (ValueError, RecursionError) as error:
                    self.error = f"an event is malformed: {error}"

    def finish(self) -> None:
        """The stream has ended. An event without the blank line after it still counts, as SDKs take it so."""
        self.feed(b"\n\n")


class TypedEvents(StreamAssembler):
    """For dialects whose events are objects that name their type, the last of an answer being an event as well."""

    @property
    def is_complete(self) -> bool:
        """True when the terminal event has come, and no error came."""
        return self.is_done and self.error is None

    @property
    def text(self) -> str:
        """See the base class."""
        return self.completion().messages[0].text

    def _take(self, event: Event) -> None:
        data = event.data.strip()
        # Some gateways end the streams of every dialect as that of chat completions ends.
        if data and data != "[DONE]":
            fields = require_object(json.loads(data), "event")
            self._take_typed(as_text(fields.get("type")) or event.type, fields)

    @abstractmethod
    def _take_typed(self, kind: str, fields: dict[str, Any]) -> None:
        """Take one event of type `kind`.

        Raises:
            ValueError: It is malformed.
        """


class ReadSampling(Protocol):
    """Reads the sampling settings of a request; `also` names keys that the dialect does not know as such."""

    def __call__(self, body: Json, also: Collection[str] = ()) -> dict[str, Any]: ...  # noqa: D102


class WriteError(Protocol):
    """Writes an error as the dialect's SDKs expect it."""

    def __call__(self, message: str, *, type: str, code: str | None = None) -> bytes: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Earlier:
    """A conversation that the provider keeps, and that a request goes on from."""

    id: str
    is_growing: bool
    """True when the provider adds this request and its answer to it under the same id."""


def _is_all_there(body: Json) -> Earlier | None:
    return None


def _resolve_nothing(body: Json, kept: Mapping[str, Json]) -> Json:
    return body


def _append(earlier: Sequence[Message], prompt: Sequence[Message]) -> list[Message]:
    return [*earlier, *prompt]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One wire format. All functions take a parsed body and change nothing."""

    answer: str
    """What it calls a complete answer, such as "a chat completion"; for messages."""
    route: str
    """Where the interception serves it."""
    path: str
    """Where a provider serves it, below its base URL."""
    read_prompt: Callable[[Json], list[Message]]
    """The messages of a request. Raises ValueError, saying where, when it holds something that is none."""
    read_completion: Callable[[Json], Completion]
    """What a complete answer holds. Raises ValueError when it is none."""
    read_sampling: ReadSampling
    """The sampling settings that a request carries."""
    impose: Callable[[Json, str, Sampling], dict[str, Any]]
    """A request with the eval's model and sampling in place of the program's; everything else and the order stay."""
    assemble: Callable[[Json], StreamAssembler]
    """The assembler for the stream that answers a request."""
    error_body: WriteError
    """An error in the dialect's form."""
    read_earlier: Callable[[Json], Earlier | None] = _is_all_there
    """What a request goes on from; None = its messages are all there is."""
    resolve: Callable[[Json, Mapping[str, Json]], Json] = _resolve_nothing
    """A request with what it refers to by id put in its place, as far as that is among what earlier answers held."""
    extend: Callable[[Sequence[Message], Sequence[Message]], list[Message]] = _append
    """What the model sees when a prompt (second) goes on from an earlier conversation (first)."""
    independent: str | None = None
    """The list of a request whose items can be read one by one, without the rest of the body; None = there is none."""
    not_imposed: frozenset[str] = frozenset()
    """Sampling settings for which it has no place; `sampling.extra` reaches what a provider adds."""
