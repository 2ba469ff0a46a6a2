"""One request to a provider over aiohttp, the only module that knows that library."""

import errno
import io
import resource
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import aiohttp
import anyio
from yarl import URL

from vfx.clients.base import ProviderRequest
from vfx.clients.endpoint import Endpoint
from vfx.clients.retry import NotConnectedError
from vfx.errors import ProviderError
from vfx.redaction import redact

__all__ = ["Exchange", "Transport", "open_transport"]

DNS_CACHE_S = 300
URLS = 64
# Larger bodies are written in pieces, so that one does not hold up the others.
LARGE_BODY = 1 << 20
PIECE = 1 << 18
# What the library takes at once, before a provider has read any of it.
UNREAD_BODY = 1 << 15
# Gateways put their diagnostics into headers.
MAX_HEADER = 1 << 16

_NOT_FOR_PROGRAMS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(slots=True)
class Exchange:
    """A provider's answer: status and headers, and the body read or still to come."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    chunks: "Chunks | None"
    _response: aiohttp.ClientResponse

    def close(self) -> None:
        """Close the connection, unless the body was read to its end and the connection serves others by now."""
        self._response.close()


class Chunks:
    """The body of a stream, unpacked, as it arrives. No generator: one that is left half-read needs no clean-up."""

    def __init__(self, response: aiohttp.ClientResponse, host: str, idle_timeout: float) -> None:
        self._response = response
        self._host = host
        self._idle_timeout = idle_timeout

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except aiohttp.ServerTimeoutError as error:
            raise _silence(self._host, self._idle_timeout) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProviderError(f"provider stream incomplete: {self._host} {_words(error)}") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


class Transport:
    """Connections to one endpoint, as many as there are calls, within what the system allows."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, idle_timeout: float) -> None:
        self._session = session
        self._endpoint = endpoint
        self._idle_timeout = idle_timeout
        # Parsing one costs as much as the rest of what is done to a request here.
        self._url = lru_cache(URLS)(self._parse)

    def _parse(self, path: str) -> URL:
        return URL(self._endpoint.url(path))

    async def exchange(self, request: ProviderRequest) -> Exchange:
        """Send `request` once.

        Raises:
            NotConnectedError: It may be sent again.
            ProviderError: The provider was silent for too long.
        """
        host = self._endpoint.host
        try:
            return await self._exchange(request)
        except (aiohttp.ServerTimeoutError, TimeoutError) as error:
            raise _silence(host, self._idle_timeout) from error
        except aiohttp.ClientHttpProxyError as error:
            raise NotConnectedError(f"the proxy for {host} answered HTTP {error.status}", is_final=True) from None
        except aiohttp.ClientSSLError as error:
            text = redact(f"no secure connection to {host}: {error.os_error}")
            raise NotConnectedError(text, fatal=f"no secure connection to {host}", is_final=True) from error
        except aiohttp.ClientProxyConnectionError as error:
            text = f"the proxy for {host} can't be reached: {error.os_error.strerror}"
            raise NotConnectedError(text, fatal="proxy not reached") from error
        except aiohttp.ClientConnectorDNSError as error:
            raise NotConnectedError(f"unknown host: {host}", fatal=f"unknown host: {host}") from error
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno == errno.ECONNREFUSED:
                raise NotConnectedError(f"{host} refused the connection", fatal=f"refused by {host}") from error
            text = f"no connection to {host}: {error.os_error.strerror or error.os_error}"
            raise NotConnectedError(text, fatal=f"no connection to {host}") from error
        except aiohttp.ClientResponseError as error:
            # Not chained: its text holds the whole URL, its representation our headers.
            raise NotConnectedError(f"{host} sent no proper HTTP: {redact(error.message)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NotConnectedError(f"{host} {_words(error)}") from error

    async def _exchange(self, request: ProviderRequest) -> Exchange:
        response = await self._send(request)
        try:
            headers = _passing(response)
            if request.is_stream and response.status < 300:
                chunks = Chunks(response, self._endpoint.host, self._idle_timeout)
                return Exchange(response.status, headers, b"", chunks, response)
            return Exchange(response.status, headers, await _read(response), None, response)
        except BaseException:
            response.close()
            raise

    async def _send(self, request: ProviderRequest) -> aiohttp.ClientResponse:
        body, headers = request.body, self._endpoint.headers(request.headers, request.path)
        if len(body) > LARGE_BODY:
            headers.append(("Content-Length", str(len(body))))
        with self._writing(len(request.body)):
            return await self._session.request(
                request.method,
                self._url(request.path),
                data=_in_pieces(body) if len(body) > LARGE_BODY else body or None,
                headers=headers,
                allow_redirects=False,
                proxy=self._endpoint.proxy,
            )

    def _writing(self, body_bytes: int) -> AbstractContextManager[object]:
        """Bounds how long a provider may not read: the library's own limits begin after the body was written."""
        return anyio.fail_after(2 * self._idle_timeout) if body_bytes > UNREAD_BODY else nullcontext()


@asynccontextmanager
async def open_transport(endpoint: Endpoint, idle_timeout: float) -> AsyncGenerator[Transport]:
    """Connections to `endpoint`, closed on leaving; silence of `idle_timeout` seconds ends a call."""
    connector = _Connector(limit=_most_connections(), ttl_dns_cache=DNS_CACHE_S)
    timeout = aiohttp.ClientTimeout(total=None, connect=idle_timeout, sock_connect=idle_timeout, sock_read=idle_timeout)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        max_line_size=MAX_HEADER,
        max_field_size=MAX_HEADER,
    ) as session:
        yield Transport(session, endpoint, idle_timeout)


class _Connector(aiohttp.TCPConnector):
    """Uses the connection again that was used last, so that those of a burst grow old and are closed."""

    def __init__(self, *, limit: int, ttl_dns_cache: int) -> None:
        super().__init__(limit=limit, ttl_dns_cache=ttl_dns_cache)  # pyright: ignore[reportUnknownMemberType]
        # The library has no setting for it: it takes the one that was used longest ago, the likeliest to be closed.
        self._conns = defaultdict(_Stack)


class _Stack(deque[Any]):
    def popleft(self) -> Any:
        return self.pop()


def _most_connections() -> int:
    """Half of the files that may be open, since a call has come by a connection, too; 0 = any number."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if allowed == resource.RLIM_INFINITY else max(1, allowed // 2)


async def _in_pieces(body: bytes) -> AsyncGenerator[memoryview]:
    """What the library itself would copy first."""
    for start in range(0, len(body), PIECE):
        yield memoryview(body)[start : start + PIECE]


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. A large one is put together as it comes: joined at its end, it would hold up all other calls."""
    if response.content_length is not None and response.content_length <= LARGE_BODY:
        return await response.read()
    whole = io.BytesIO()
    async for piece in response.content.iter_any():
        whole.write(piece)
    return whole.getvalue()


def _passing(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    named = {name.strip().lower() for name in response.headers.get("Connection", "").split(",")}
    dropped = _NOT_FOR_PROGRAMS | named
    return [(name, value) for name, value in response.headers.items() if name.lower() not in dropped]


def _silence(host: str, idle_timeout: float) -> ProviderError:
    return ProviderError(f"provider idle timeout: no byte for {idle_timeout:g} s from {host}")


def _words(error: Exception) -> str:
    if "content-encoding" in str(error):
        return "sent a body that can't be unpacked"
    return "closed the connection before the answer was complete"
