"""The contract of a client, and the settings that choose and configure one.

A client takes a native request of some dialect and gives back the provider's native answer. It never reformats what it
need not read. This module imports nothing heavy: it is loaded before the command line is checked.
"""

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from vfx.clients.faults import checked_shares
from vfx.errors import Mistake, ProviderError
from vfx.settings import Settings

if TYPE_CHECKING:
    from vfx.messages import Message
    from vfx.trace.record import Trace

__all__ = [
    "Client",
    "ClientSettings",
    "HttpSettings",
    "Listener",
    "LocalSettings",
    "Observer",
    "ProviderRequest",
    "ProviderResponse",
    "ScriptedSettings",
    "TapeUse",
    "Waiting",
    "create_client",
]

Headers = Sequence[tuple[str, str]]


class _Common(Settings):
    """What every client has."""

    max_retries: int = Field(default=5, ge=0)
    """How often one call is sent again after a 429, a 5xx, or a failed connection."""
    max_retry_wait: float = Field(default=60.0, ge=0)
    """Longest wait before one retry, in seconds; a provider that asks for more fails the call."""
    chaos: dict[str, float] = Field(default_factory=dict)
    """Faults to inject, each with its share of the requests: a status such as 429, cut, refused or slow."""
    chaos_seed: int = 0
    """Seed of the faults: with the same one the same requests meet the same faults."""
    chaos_delay: float = Field(default=2.0, ge=0)
    """Seconds by which `slow` delays an answer."""
    cassette: Path | None = None
    """A file on which answers are recorded, and from which they are given again; None = no such."""
    cassette_mode: Literal["auto", "record", "replay"] = "auto"
    """`auto`: replay what is on the tape and record the rest; `record`: a new tape; `replay`: call nobody."""
    cassette_ignore: tuple[str, ...] = ()
    """Regular expressions for parts of requests that may differ from those on the tape."""

    @field_validator("chaos")
    @classmethod
    def _are_faults(cls, value: dict[str, float]) -> dict[str, float]:
        return checked_shares(value)

    @model_validator(mode="after")
    def _has_cassette(self) -> Self:
        # A saved configuration names every option.
        given = [name for name in ("cassette_mode", "cassette_ignore") if getattr(self, name) != _default(self, name)]
        if self.cassette is None and given:
            raise ValueError(f"{min(given)} is of use only with a tape: name it with --client.cassette")
        return self

    @field_validator("cassette_ignore")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return value


def _default(settings: Settings, name: str) -> object:
    return type(settings).model_fields[name].default


class HttpSettings(_Common):
    """Any OpenAI-compatible endpoint."""

    type: Literal["http"] = "http"
    base_url: str = "https://api.openai.com/v1"
    """The endpoint's address as its SDK wants it, usually ending in /v1; `user:password@` is used when no key is."""
    api_key_var: str | None = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; `none` for an endpoint without one."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers for every request. `env:NAME` is read from the environment; a literal value is masked when saved."""
    idle_timeout: float = Field(default=600.0, gt=0)
    """Seconds without a byte from the provider, or without a connection, until a call fails."""

    @field_validator("api_key_var")
    @classmethod
    def _none_is_no_key(cls, value: str | None) -> str | None:
        return None if value in ("", "none") else value


class LocalSettings(_Common):
    """The embedded model: small, free, offline. `vfx model install` fetches it once."""

    type: Literal["local"] = "local"
    slots: int = Field(default=4, ge=1, le=64)
    """How many answers it writes at the same time."""
    threads: int = Field(default=1, ge=1)
    """Processor threads; more than one pays off only on an idle machine."""
    context: int = Field(default=2048, ge=256)
    """Context length of each slot, in tokens."""
    max_tokens: int = Field(default=512, ge=1)
    """Bound on the tokens of one answer when the program sets none."""


class ScriptedSettings(_Common):
    """No model: answers are read from a script. For trying out an environment, and for tests."""

    type: Literal["scripted"] = "scripted"
    replies: tuple[str, ...] = ()
    """The answers of one conversation, first to last, then from the start; none = the last user message comes back.
    One such as {"tool": "search", "arguments": {"text": "x"}} calls a tool."""
    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""
    file: Path | None = None
    """A UTF-8 text file with one answer a line, in place of `replies`; None = none."""


ClientSettings = Annotated[HttpSettings | LocalSettings | ScriptedSettings, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One request, as the program's SDK wrote it but for what the eval imposes."""

    path: str
    """Below the endpoint's base URL, such as `chat/completions`."""
    body: bytes
    """The native body; empty for GET."""
    headers: Headers = ()
    """The program's own headers that may pass: no credentials, nothing hop-by-hop."""
    is_stream: bool = False
    """Whether the program asked for an event stream."""
    method: Literal["POST", "GET"] = "POST"
    model: str | None = None
    """The model that the body asks for, for messages; None = nobody has looked."""
    asker: "Trace | None" = None
    """The trace of the attempt that it is made for; None = it is for none."""
    side: str | None = None
    """Who asks beside the evaluated program: `judge` or `user` and a name; None = the program does."""
    prompt: Sequence["Message"] = ()
    """What it asks, with what the provider keeps of the conversation; empty when nobody has read it."""


@dataclass(slots=True)
class ProviderResponse:
    """The provider's answer, its content unpacked but otherwise untouched."""

    status: int
    headers: Headers
    """Those that may reach the program: no hop-by-hop, length, encoding or cookie headers."""
    body: bytes = b""
    """The whole body; empty when `chunks` is set."""
    chunks: AsyncIterator[bytes] | None = None
    """The body of a successful stream as it arrives; iterating raises ProviderError when it breaks off."""
    error: ProviderError | None = None
    """Set when `status` is an error: what a person should know about it."""
    attempts: int = 1
    """Requests that were sent for this answer."""
    waited: float = 0.0
    """Seconds spent waiting between them."""
    notes: Sequence[str] = ()
    """What the trace should tell of this call besides."""
    endpoint: str | None = None
    """Where it came from when it was recorded; None = from the client's endpoint, just now."""
    taped: str | None = None
    """Where it stands on a tape, or will when it is whole, such as `3f9a1c77#12`; None = on none."""


@dataclass(slots=True)
class Waiting:
    """What the client is holding back for, shown to whoever watches the run."""

    calls: int = 0
    """Calls that wait at this moment."""
    until: float = 0.0
    """When the longest of these waits ends, in seconds since the epoch."""
    reason: str = ""
    """Such as `429 from api.example.com`."""
    retries: int = 0
    """Requests sent again since the run began."""
    _ends: dict[object, float] = field(default_factory=dict[object, float], repr=False)

    @contextmanager
    def shown(self, until: float, reason: str) -> Generator[None]:
        """A call is seen to wait while the context lasts.

        Args:
            until: When it will go on, in seconds since the epoch.
            reason: What it waits for.
        """
        wait = object()
        self._ends[wait] = until
        self._count(reason)
        try:
            yield
        finally:
            del self._ends[wait]
            self._count(self.reason)

    def _count(self, reason: str) -> None:
        self.calls = len(self._ends)
        self.until = max(self._ends.values(), default=0.0)
        self.reason = reason if self._ends else ""


@dataclass(slots=True)
class TapeUse:
    """What `--client.cassette` has done so far."""

    path: str
    """As the user wrote it."""
    replayed: int = 0
    """Answers that came from the tape."""
    recorded: int = 0
    """Answers that were added to it."""


class Listener(Protocol):
    """Wants to know how the provider takes what is sent to it. Times are `time.monotonic`'s."""

    def answered(self, sent: float, now: float) -> None:
        """A request that went out at `sent` has its whole answer."""

    def pushed_back(self, sent: float, now: float) -> None:
        """A request that went out at `sent` was refused since there were too many."""


@dataclass(slots=True)
class Observer:
    """What the client tells of each request as it ends; wrapped clients share one."""

    listener: Listener | None = None
    """Who is told; None = nobody."""

    def answered(self, sent: float) -> None:
        """See `Listener.answered`."""
        if self.listener is not None:
            self.listener.answered(sent, time.monotonic())

    def pushed_back(self, sent: float) -> None:
        """See `Listener.pushed_back`."""
        if self.listener is not None:
            self.listener.pushed_back(sent, time.monotonic())


class Client(ABC):
    """Calls one provider. Enter it once a run; it may be used by many tasks at a time."""

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.observer = Observer()
        self.injected_faults: Counter[str] = Counter()
        """What `--client.chaos` has done so far, by kind."""
        self.tape: TapeUse | None = None
        """The tape in use; None = there is none."""
        self.skipped: set[str] = set()
        """Exchanges of a tape that earlier launches of the run have had, so that they are not replayed."""
        self.discarded: set[str] = set()
        """Exchanges of a tape that attempts have had which are tried again; taken out of here once that is noted."""

    @property
    @abstractmethod
    def default_model(self) -> str | None:
        """The model to ask for when the user names none; None when there is no such."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where calls go, for people and records: no credentials, no query."""

    def mistakes(self) -> list[Mistake]:
        """What keeps this client from working and can be known before anything is started."""
        return []

    @abstractmethod
    def serving(self) -> AbstractAsyncContextManager[None]:
        """Holds the client's connections and processes.

        Raises:
            RunError: What it needs can't be started.
        """

    @abstractmethod
    def send(self, request: ProviderRequest) -> AbstractAsyncContextManager[ProviderResponse]:
        """Make one call, retries included; leaving the context closes its connection.

        A status that is an error gives a response with `error` set, so that the program can see it unchanged.

        Raises:
            ProviderError: There is no answer: not connected, silent for too long, or cut off.
        """


def create_client(settings: HttpSettings | LocalSettings | ScriptedSettings, *, is_resumed: bool = False) -> Client:
    """The client that `settings` choose. Its module is loaded only now, since an HTTP library costs start-up time.

    Args:
        settings: The user's.
        is_resumed: The run that it is for goes on.
    """
    name = settings.type
    client = getattr(import_module(f"vfx.clients.{name}"), f"{name.capitalize()}Client")(settings)
    if settings.cassette is not None:
        client = import_module("vfx.clients.tapes.cassette").CassetteClient(client, settings, is_resumed=is_resumed)
    if settings.chaos:
        # Outermost, so that no fault of its making lands on a cassette.
        return import_module("vfx.clients.chaos").ChaosClient(client, settings)
    return client
