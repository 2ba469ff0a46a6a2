"""The way to an endpoint from another host: the contract of what opens one, and the task that holds it."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.abc import TaskStatus

from vfx._concurrency import grace
from vfx.errors import RolloutError, RunError, TunnelError, attributed

__all__ = ["OpenTunnel", "tunnelled"]

log = logging.getLogger(__name__)

OpenTunnel = Callable[[str], AbstractAsyncContextManager[str]]
"""Takes the local URL of a server; inside the context the server is reached at the URL that it gives, which has no
trailing slash. It may raise anything: what is not a RolloutError yet becomes a TunnelError."""

CLOSE_S = 5.0


@asynccontextmanager
async def tunnelled(open_tunnel: OpenTunnel, local_url: str) -> AsyncGenerator[str]:
    """Holds a tunnel and gives its public URL. Its closing is bounded, and a failure there is logged, not raised.

    Raises:
        TunnelError: It could not be opened. It may come wrapped in an exception group.
    """
    closing, closed = anyio.Event(), anyio.Event()
    # A task of its own: a tunnel may hold scopes, so that only from outside its closing can be bounded.
    async with anyio.create_task_group() as group:
        name = f"tunnel to {local_url}"
        url, scope = await group.start(_hold, open_tunnel, local_url, closing, closed, name=name)
        try:
            yield url
        finally:
            closing.set()
            with grace(CLOSE_S, f"the tunnel {url} to close", is_release=True):
                await closed.wait()
            scope.cancel()


async def _hold(
    open_tunnel: OpenTunnel,
    local_url: str,
    closing: anyio.Event,
    closed: anyio.Event,
    *,
    task_status: TaskStatus[tuple[str, anyio.CancelScope]],
) -> None:
    is_open = False
    try:
        with attributed(TunnelError, "tunnel"), anyio.CancelScope() as scope:
            async with open_tunnel(local_url) as url:
                is_open = True
                # A cancellation from above ends its opening, but neither its life nor its closing.
                scope.shield = True
                task_status.started((url, scope))
                await closing.wait()
    except (RolloutError, RunError) as error:
        if not is_open:
            raise
        log.warning("closing a tunnel: %s", error)
    finally:
        closed.set()
