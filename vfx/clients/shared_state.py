"""The way from a tool server's process to the state and the task of the rollout that it serves.

One set of connections a process, which are kept alive between calls. Loaded only where tools run.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp

__all__ = ["Answer", "ask", "connected"]

TIMEOUT_S = 30.0
# As many as a server's tools may need at one time; others wait for one to be free.
MAX_CONNECTIONS = 64

_session: ContextVar[aiohttp.ClientSession] = ContextVar("session")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the interception said."""

    status: int
    content: Any
    """JSON; None when there is no body."""
    tag: str
    """The version of the state; "" when none was told."""

    @property
    def reason(self) -> str:
        """Why it refused."""
        try:
            return str(self.content["error"]["message"])
        except (KeyError, TypeError):
            return f"HTTP {self.status}"


@asynccontextmanager
async def connected() -> AsyncGenerator[None]:
    """Calls of `ask` are possible inside, and in what is started inside; connections are closed afterwards."""
    connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    # No proxy of the environment: what is asked is this run itself.
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
        token = _session.set(session)
        try:
            yield
        finally:
            _session.reset(token)


async def ask(method: str, url: str, key: str, *, content: Any = None, expected: str | None = None) -> Answer:
    """One request.

    Args:
        method: GET or PUT.
        url: Where.
        key: The rollout's state secret.
        content: JSON text to send; None = nothing.
        expected: The version that a write replaces; None = any.

    Raises:
        OSError: There was no answer; says nothing of the key.
    """
    headers = {"Authorization": f"Bearer {key}"}
    if content is not None:
        headers["Content-Type"] = "application/json"
    if expected is not None:
        headers["If-Match"] = expected
    try:
        async with _session.get().request(method, url, headers=headers, data=content) as response:
            body = await response.read()
            return Answer(response.status, json.loads(body) if body else None, response.headers.get("ETag", ""))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        # Not chained: the representation of a request shows its headers.
        raise OSError(f"the run can't be reached: {type(error).__name__}") from None
