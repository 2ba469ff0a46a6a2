"""HTTP on a loopback socket of ours: uvicorn without its signal handling, its tick and its slow shutdown.

Imported only by what serves, since uvicorn costs start-up time.
"""

import logging
import socket
from typing import Any

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HOST", "HttpServer", "listen"]

HOST = "127.0.0.1"
BACKLOG = 2048
# Clients drop idle connections after 5 s. One that we drop first may be in use for a request by then.
IDLE_CONNECTION_S = 75


def listen(port: int = 0) -> socket.socket:
    """A socket that listens on the loopback interface; port 0 = a free one.

    Raises:
        OSError: The port is taken.
    """
    listener = socket.create_server((HOST, port), backlog=BACKLOG)
    # Connections inherit it. asyncio sets it only where a socket says its protocol, and without it what is written in
    # pieces waits for the other side's delayed acknowledgement, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.settimeout(0)
    return listener


class HttpServer(uvicorn.Server):
    """Only its protocol and its start: no signal handlers, no task of its own that wakes ten times a second.

    Begin it with `startup(sockets=[...])`, end it with `close` and `abort`, or with `abort` alone.
    """

    def __init__(self, app: Any, protocol: type[HttpToolsProtocol] = HttpToolsProtocol) -> None:
        """See the class.

        Args:
            app: An ASGI callable.
            protocol: What reads and writes a connection.
        """
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # It logs an aborted stream as an error of the application; ours are reported where they arise.
            log_level=logging.CRITICAL,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_CONNECTION_S,
        )
        super().__init__(config)
        config.load()
        self.lifespan = config.lifespan_class(config)
        self.servers = []

    async def close(self) -> None:
        """Accept nothing more, and wait for what is under way."""
        self._accept_nothing()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody when the last one has gone
            await anyio.sleep(0.001)

    def abort(self) -> None:
        """Accept nothing more, and cut the connections that are left."""
        self._accept_nothing()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _accept_nothing(self) -> None:
        for server in self.servers:
            server.close()
