"""The contract of an interception, whatever its shape, and the settings that choose one."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

from pydantic import Field

from vfx.clients.base import Client
from vfx.interception.session import Session
from vfx.settings import Settings

__all__ = [
    "ElasticSettings",
    "Interception",
    "InterceptionSettings",
    "ServerSettings",
    "Slot",
    "StaticSettings",
    "create_interception",
]


class ServerSettings(Settings):
    """One server for all rollouts."""

    type: Literal["server"] = "server"


class StaticSettings(Settings):
    """A fixed list of servers, all started up front; a rollout lands on the least loaded."""

    type: Literal["static"] = "static"
    servers: tuple[ServerSettings, ...] = Field(default=(ServerSettings(),), min_length=1)
    """The servers; there is no bound on the rollouts of each."""


class ElasticSettings(Settings):
    """Servers as needed: one warm at the start, a new one when all are full."""

    type: Literal["elastic"] = "elastic"
    multiplex: int = Field(default=32, ge=1)
    """Rollouts on one server."""
    max_servers: int | None = Field(default=None, ge=1)
    """Bound on the servers; rollouts beyond it wait for a place. None = unbounded."""
    max_starting: int = Field(default=16, ge=1)
    """Servers that may be starting at the same time."""
    idle_timeout: float | None = Field(default=None, gt=0)
    """Seconds after which a server without rollouts is closed, the last one excepted; None = at the end of the run."""


InterceptionSettings = Annotated[ServerSettings | StaticSettings | ElasticSettings, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class Slot:
    """One rollout's place on a server."""

    base_url: str
    """What the program's SDK is given; ends in `/v1`."""
    api_key: str
    """The rollout's own secret for model calls."""


class Interception(ABC):
    """Brings servers up and gives rollouts their places on them. Whoever enters it owns it; borrowers only acquire."""

    @abstractmethod
    async def start(self) -> None:
        """Bring up what the shape starts with.

        Raises:
            InterceptionError: It can't be.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Close every server, in reverse order, and fail every acquire that still waits. Bounded; safe to call twice."""

    @abstractmethod
    def acquire(self, session: Session) -> AbstractAsyncContextManager[Slot]:
        """A place for one rollout, as long as the context lasts; its secret is dead afterwards.

        Raises:
            InterceptionError: No server could be started for it, or the interception has stopped.
        """

    @property
    @abstractmethod
    def num_servers(self) -> int:
        """Servers that are up at this moment."""

    @property
    @abstractmethod
    def peak_servers(self) -> int:
        """The most servers that were up at one time."""


def create_interception(settings: ServerSettings | StaticSettings | ElasticSettings, client: Client) -> Interception:
    """The interception that `settings` choose, forwarding to `client`. Its modules are loaded only now."""
    module, name = {
        "server": ("single", "SingleServer"),
        "static": ("static", "StaticPool"),
        "elastic": ("elastic", "ElasticPool"),
    }[settings.type]
    return getattr(import_module(f"vfx.interception.{module}"), name)(settings, client)
