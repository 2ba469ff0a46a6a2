"""One server for all rollouts."""

from vfx.clients.base import Client
from vfx.interception.base import ServerSettings, StaticSettings
from vfx.interception.static import StaticPool
from vfx.interception.tunnel import OpenTunnel

__all__ = ["SingleServer"]


class SingleServer(StaticPool):
    """A fixed list of one."""

    def __init__(self, settings: ServerSettings, client: Client, *, open_tunnel: OpenTunnel | None = None) -> None:
        super().__init__(StaticSettings(servers=(settings,)), client, open_tunnel=open_tunnel)
