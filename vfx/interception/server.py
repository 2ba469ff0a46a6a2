"""One endpoint on a socket of ours: uvicorn without its signal handling, its tick and its slow shutdown.

Loaded only when an interception is made, since uvicorn costs start-up time.
"""

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import uvicorn
from anyio.abc import TaskStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vfx._concurrency import grace
from vfx.clients.base import Client
from vfx.errors import InterceptionError, attributed
from vfx.interception.app import App
from vfx.interception.base import Slot
from vfx.interception.exchange import HUNG_UP
from vfx.interception.memory import collect_less_often, return_large_blocks
from vfx.interception.session import Session
from vfx.interception.tunnel import OpenTunnel, tunnelled

__all__ = ["Server"]

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
BACKLOG = 2048
KEEP_ALIVE_S = 15.0
CLOSE_S = 2.0
# SDKs drop idle connections after 5 s. One that we drop first may be in use for a request by then.
IDLE_CONNECTION_S = 75


class Server:
    """Serves the rollouts that were given a slot on it. `run` it in a task group of its owner."""

    def __init__(
        self,
        client: Client,
        *,
        open_tunnel: OpenTunnel | None = None,
        keep_alive: float = KEEP_ALIVE_S,
        max_body_bytes: int | None = None,
    ) -> None:
        """See the class.

        Args:
            client: Where calls go.
            open_tunnel: The way in from other hosts; None = programs on this host only.
            keep_alive: Seconds of a provider's silence after which a stream gets a comment.
            max_body_bytes: Bound on a request; None = unbounded.
        """
        return_large_blocks()
        collect_less_often()
        self._app = App(client, keep_alive=keep_alive, max_body_bytes=max_body_bytes)
        self._open_tunnel = open_tunnel
        self._stopping = anyio.Event()
        self.url = ""
        """Where programs reach it, without a trailing slash; set once it is up."""
        self.is_up = False
        self.ended = anyio.Event()
        """Set when nothing of it is left."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Be up until `stop` is called; a cancellation counts only before that.

        Raises:
            InterceptionError: It could not be started.
        """
        try:
            with attributed(InterceptionError, "interception server"), anyio.CancelScope() as scope:
                async with _listening(self._app) as local_url, self._reached(local_url) as self.url:
                    self.is_up = True
                    # Rollouts that are being cancelled too still need it: only its owner knows when they are done.
                    scope.shield = True
                    task_status.started()
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._app.heart.beat, name="keep-alive")
                        await self._stopping.wait()
                        group.cancel_scope.cancel()
        except InterceptionError as error:
            if not self.is_up:
                raise
            log.warning("closing an interception server: %s", error)
        finally:
            self.is_up = False
            self.ended.set()

    def stop(self) -> None:
        """Ask it to end; it does so within a bounded time."""
        self._stopping.set()

    @asynccontextmanager
    async def _reached(self, local_url: str) -> AsyncGenerator[str]:
        if self._open_tunnel is None:
            yield local_url
            return
        async with tunnelled(self._open_tunnel, local_url) as url:
            self._app.hosts.add((urlsplit(url).hostname or "").lower())
            yield url

    @asynccontextmanager
    async def slot(self, session: Session) -> AsyncGenerator[Slot]:
        """Serve one rollout; afterwards its secret is dead and none of its calls is under way."""
        self._app.open(session)
        try:
            yield Slot(f"{self.url}/v1", session.api_key, self.url, session.state_key)
        finally:
            with grace(CLOSE_S, "calls of a rollout to end"):
                await self._app.close(session)


@asynccontextmanager
async def _listening(app: App) -> AsyncGenerator[str]:
    """Serve `app` on a free port of the loopback interface; gives the URL."""
    listener = _listener()
    endpoint = _Uvicorn(app)
    try:
        await endpoint.startup(sockets=[listener])
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        with grace(CLOSE_S, "connections to close"):
            app.cancel()
            await endpoint.close()
        endpoint.abort()
        listener.close()


def _listener() -> socket.socket:
    listener = socket.create_server((HOST, 0), backlog=BACKLOG)
    # Connections inherit it. asyncio sets it only where a socket says its protocol, and without it what is written in
    # pieces waits for the other side's delayed acknowledgement, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.settimeout(0)
    return listener


class _Protocol(HttpToolsProtocol):
    """Tells whoever serves a request when the program goes away."""

    def on_message_complete(self) -> None:
        super().on_message_complete()
        # Reading may have been held back for the body; what is not read does not tell of its end either.
        if not self.pipeline:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        cycle = self.cycle
        if cycle and cycle.disconnected and (hung_up := cycle.scope.get(HUNG_UP)) is not None:
            hung_up()


class _Uvicorn(uvicorn.Server):
    """Only its protocol and its start: no signal handlers, no task of its own."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
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
        for server in self.servers:
            server.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody when the last one has gone
            await anyio.sleep(0.001)

    def abort(self) -> None:
        """Cut the connections that are left."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
