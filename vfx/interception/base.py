"""The contract of an interception, whatever its shape, and the settings that choose one."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

from pydantic import Field

from vfx.clients.base import Client
from vfx.interception.session import Session
from vfx.interception.tunnel import OpenTunnel
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


class _Bounds(Settings):
    """What every shape has."""

    max_body_bytes: int | None = Field(default=None, ge=1)
    """Bound on the bytes of a program's request, which is refused beyond it; None = unbounded."""


class ServerSettings(_Bounds):
    """One server for all rollouts."""

    type: Literal["server"] = "server"


class StaticSettings(_Bounds):
    """A fixed list of servers, all started up front; a rollout lands on the least loaded."""

    type: Literal["static"] = "static"
    servers: tuple[ServerSettings, ...] = Field(default=(ServerSettings(),), min_length=1)
    """The servers; there is no bound on the rollouts of each. One without `max_body_bytes` has that of the list."""


class ElasticSettings(_Bounds):
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
    state_url: str
    """Where the rollout's tool and user servers find its state and its task; ends in neither `/v1` nor a slash."""
    state_key: str
    """Their secret there, which opens no model."""


class Interception(ABC):
    """Brings servers up and gives rollouts their places on them. Whoever enters it owns it; borrowers only acquire."""

    @abstractmethod
    def serving(self) -> AbstractAsyncContextManager[None]:
        """Holds the servers: what the shape starts with is up inside, and everything is closed afterwards.

        On leaving, what is still starting is cancelled, servers are closed in reverse order, each within a bounded time
        and whether or not another one's closing fails, and every acquire that still waits gets an error.

        Raises:
            RunError: What the shape starts with can't be.
        """

    @abstractmethod
    def acquire(self, session: Session) -> AbstractAsyncContextManager[Slot]:
        """A place for one rollout, as long as the context lasts; its secret is dead afterwards.

        Raises:
            InterceptionError: No server could be started for it, or the interception has stopped.
        """

    @property
    @abstractmethod
    def num_servers(self) -> int:
        """Servers that are up at this moment; 0 outside `serving`."""

    @property
    @abstractmethod
    def peak_servers(self) -> int:
        """The most servers that were up at one time."""


def create_interception(
    settings: ServerSettings | StaticSettings | ElasticSettings,
    client: Client,
    *,
    open_tunnel: OpenTunnel | None = None,
) -> Interception:
    """The interception that `settings` choose. Its modules are loaded only now.

    Args:
        settings: The shape and its options.
        client: Where calls go.
        open_tunnel: The way in from other hosts; None = programs on this host only.
    """
    module, name = {
        "server": ("single", "SingleServer"),
        "static": ("static", "StaticPool"),
        "elastic": ("elastic", "ElasticPool"),
    }[settings.type]
    return getattr(import_module(f"vfx.interception.{module}"), name)(settings, client, open_tunnel=open_tunnel)
