"""Who may call a tool server, in front of the SDK: one plain ASGI callable.

A rollout is known by the tag in its URL, which vfx opens and closes. Foreign hosts and origins (403), unknown paths
(404) and methods (405) are refused whatever the tag; every wrong tag then gets one and the same 401.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from hmac import compare_digest, new
from typing import Any
from urllib.parse import parse_qs

import anyio

from vfx.authoring.toolset import Caller, caller

__all__ = ["MCP_PATH", "ROLLOUTS_PATH", "Gate", "proof"]

MCP_PATH = "/mcp"
ROLLOUTS_PATH = "/rollouts/"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def proof(key: str, nonce: str) -> str:
    """What only the server with this key can answer, without the key itself being sent."""
    return new(key.encode(), nonce.encode(), sha256).hexdigest()


@dataclass(slots=True)
class _Rollout:
    caller: Caller | None
    running: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])


class Gate:
    """Lets the calls of open rollouts through."""

    def __init__(self, app: App, key: str) -> None:
        """See the class.

        Args:
            app: Serves MCP.
            key: What vfx opens and closes rollouts with.
        """
        self._app = app
        self._key = key
        self._rollouts: dict[bytes, _Rollout] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        if not _is_from_here(headers):
            await _answer(send, 403, "this host or origin may not call this server")
        elif path == "/health":
            await self._tell_health(scope, send)
        elif path == MCP_PATH:
            await self._pass_on(scope, receive, send)
        elif not path.startswith(ROLLOUTS_PATH):
            await _answer(send, 404, "no such path")
        elif method not in ("PUT", "DELETE"):
            await _answer(send, 405, "this path takes PUT and DELETE only")
        elif not compare_digest(headers.get(b"authorization", b""), f"Bearer {self._key}".encode()):
            await _answer(send, 401, "this key opens nothing here")
        else:
            await self._open_or_close(_digest(path.removeprefix(ROLLOUTS_PATH)), method, receive, send)

    async def _tell_health(self, scope: Scope, send: Send) -> None:
        nonce = parse_qs(scope["query_string"].decode("latin-1")).get("nonce", [""])[0]
        shown = {"status": "ok", **({"proof": proof(self._key, nonce)} if nonce else {})}
        await _answer(send, 200, content=shown)

    async def _open_or_close(self, digest: bytes, method: str, receive: Receive, send: Send) -> None:
        if method == "PUT":
            body = await _read(receive)
            self._rollouts[digest] = _Rollout(Caller(**json.loads(body)) if body else None)
        elif rollout := self._rollouts.pop(digest, None):
            for scope in rollout.running:
                scope.cancel()
        await _answer(send, 200)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            # There are no sessions here, so nothing that a GET could listen to or a DELETE end.
            await _answer(send, 405, "this path takes POST only")
            return
        tag = parse_qs(scope["query_string"].decode("latin-1")).get("rollout", [""])[0]
        rollout = self._rollouts.get(_digest(tag))
        if rollout is None:
            await _answer(send, 401, "this URL opens nothing here")
            return
        sent = False

        async def note(message: MutableMapping[str, Any]) -> None:
            nonlocal sent
            sent = True
            await send(message)

        token = caller.set(rollout.caller) if rollout.caller else None
        with anyio.CancelScope() as call:
            rollout.running.add(call)
            try:
                await self._app({**scope, "query_string": b""}, receive, note)
            finally:
                rollout.running.discard(call)
                if token:
                    caller.reset(token)
        if call.cancelled_caught and not sent:
            await _answer(send, 401, "this URL opens nothing here")


def _digest(tag: str) -> bytes:
    # What a look-up's timing tells about a digest tells nothing about the tag.
    return blake2b(tag.encode(), digest_size=16).digest()


def _is_from_here(headers: dict[bytes, bytes]) -> bool:
    """True unless a web page or a rebound name leads here, which a browser would follow with a user's rights."""
    origin = headers.get(b"origin")
    if origin is not None and _hostname(origin.decode("latin-1").partition("://")[2]) not in LOOPBACK:
        return False
    return _hostname(headers.get(b"host", b"").decode("latin-1")) in LOOPBACK


def _hostname(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Send, status: int, error: str = "", *, content: Mapping[str, str] | None = None) -> None:
    body = json.dumps({"error": error} if error else content or {}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
