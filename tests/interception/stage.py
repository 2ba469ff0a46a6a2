"""A real endpoint between a scripted provider and a program, for tests of what passes through it."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx

from tests.support.provider import Provider, Reply, scripted_provider
from vfx.authoring.state import State
from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.base import Slot
from vfx.interception.server import Server
from vfx.interception.session import Limits, Session
from vfx.messages import Sampling
from vfx.trace.record import Agent, Call, TaskRef, Trace

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def new_session(
    *,
    sampling: Sampling | None = None,
    limits: Limits | None = None,
    find_stop: Callable[[], Awaitable[str | None]] | None = None,
    state: State | None = None,
    data: Mapping[str, Any] | None = None,
) -> Session:
    """The session of a fresh rollout of model `m`."""
    task = TaskRef(type="T", key="k", occurrence=0, data=data or {})
    trace = Trace(id="t", task=task, rollout=0, agent=Agent("m", {}, {}))
    trace.state = state
    chosen = sampling or Sampling()
    return Session(trace, model="m", sampling=chosen, endpoint="http://provider", limits=limits, find_stop=find_stop)


@dataclass(slots=True)
class Stage:
    provider: Provider
    server: Server
    session: Session
    slot: Slot
    http: httpx.AsyncClient
    """Carries the rollout's secret."""

    async def post(
        self, body: Mapping[str, Any] | bytes = BODY, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """Ask for a completion; `fields` are added to a body that is no bytes."""
        raw = body if isinstance(body, bytes) else json.dumps({**body, **fields}).encode()
        lines = {"Content-Type": "application/json", **(headers or {})}
        return await self.http.post("/chat/completions", content=raw, headers=lines)

    @property
    def calls(self) -> list[Call]:
        return self.session.trace.calls

    @property
    def call(self) -> Call:
        """The only one there is."""
        (call,) = self.calls
        return call

    async def recorded(self, count: int = 1) -> None:
        """Wait until `count` calls are on the trace."""
        with anyio.fail_after(5):
            while len(self.calls) < count:
                await anyio.sleep(0.002)


@asynccontextmanager
async def running(server: Server) -> AsyncGenerator[Server]:
    """`server`, up."""
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        try:
            yield server
        finally:
            server.stop()


@asynccontextmanager
async def staged(
    *replies: Reply,
    session: Session | None = None,
    keep_alive: float = 15.0,
    default: Reply | None = None,
    idle_timeout: float = 600.0,
    max_body_bytes: int | None = None,
) -> AsyncGenerator[Stage]:
    """One server with one rollout's slot, in front of a provider that plays `replies`."""
    session = session or new_session()
    async with scripted_provider(*replies, default=default) as provider:
        settings = HttpSettings(base_url=provider.base_url, api_key_var=None, max_retries=0, idle_timeout=idle_timeout)
        client = HttpClient(settings)
        async with (
            client.serving(),
            running(Server(client, keep_alive=keep_alive, max_body_bytes=max_body_bytes)) as server,
            server.slot(session) as slot,
        ):
            headers = {"Authorization": f"Bearer {slot.api_key}"}
            async with httpx.AsyncClient(base_url=slot.base_url, headers=headers, trust_env=False) as http:
                yield Stage(provider, server, session, slot, http)
