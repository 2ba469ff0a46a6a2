"""One endpoint, for the rollouts that have a slot on it. Loaded only when an interception is made."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vfx._concurrency import grace
from vfx._http_server import HOST, HttpServer, listen
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

KEEP_ALIVE_S = 15.0
CLOSE_S = 2.0


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
    listener = listen()
    endpoint = HttpServer(app, _Protocol)
    try:
        await endpoint.startup(sockets=[listener])
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        with grace(CLOSE_S, "connections to close"):
            app.cancel()
            await endpoint.close()
        endpoint.abort()
        listener.close()


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
