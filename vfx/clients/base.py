"""The contract of a client, and the settings that choose and configure one.

A client takes a native request of some dialect and gives back the provider's native answer. It never reformats what it
need not read. This module imports nothing heavy: it is loaded before the command line is checked.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from vfx.errors import Mistake, ProviderError
from vfx.settings import Settings

__all__ = [
    "Client",
    "ClientSettings",
    "HttpSettings",
    "LocalSettings",
    "ProviderRequest",
    "ProviderResponse",
    "ScriptedSettings",
    "Waiting",
    "create_client",
]

Headers = Sequence[tuple[str, str]]


class HttpSettings(Settings):
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
    max_retries: int = Field(default=5, ge=0)
    """How often one call is sent again after a 429, a 5xx, or a failed connection."""
    max_retry_wait: float = Field(default=60.0, ge=0)
    """Longest wait before one retry, in seconds; a provider that asks for more fails the call."""

    @field_validator("api_key_var")
    @classmethod
    def _none_is_no_key(cls, value: str | None) -> str | None:
        return None if value in ("", "none") else value


class LocalSettings(Settings):
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


class ScriptedSettings(Settings):
    """No model: answers are read from a script. For trying out an environment, and for tests."""

    type: Literal["scripted"] = "scripted"
    replies: tuple[str, ...] = ()
    """The answers of one conversation, first to last, then from the start; none = the last user message comes back."""
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


class Client(ABC):
    """Calls one provider. Enter it once a run; it may be used by many tasks at a time."""

    def __init__(self) -> None:
        self.waiting = Waiting()

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


def create_client(settings: HttpSettings | LocalSettings | ScriptedSettings) -> Client:
    """The client that `settings` choose. Its module is loaded only now, since an HTTP library costs start-up time."""
    name = settings.type
    return getattr(import_module(f"vfx.clients.{name}"), f"{name.capitalize()}Client")(settings)
