"""Where an HTTP client's calls go and what goes with each: address, credentials, headers, proxy.

Reads the environment once, tells mistakes without showing a secret, and makes every secret known to `redaction`.
"""

import base64
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from vfx.clients.base import HttpSettings
from vfx.errors import Mistake
from vfx.redaction import conceal

__all__ = ["Endpoint"]

ANTHROPIC_HOST = "api.anthropic.com"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# The transport writes these itself, after what it sends.
_RESERVED = frozenset({"accept-encoding", "connection", "content-length", "content-type", "transfer-encoding", "host"})


class Endpoint:
    """One provider's address with its credentials, as the settings and the environment give them.

    Args:
        settings: The user's.
        key: The key itself, for an endpoint that vfx has started; None = the variable that the settings name.
    """

    def __init__(self, settings: HttpSettings, *, key: str | None = None) -> None:
        self.key_var = None if key is not None else settings.api_key_var
        self._key = key if key is not None else os.environ.get(settings.api_key_var or "") or None
        self._url, self._url_mistake = _split(settings.base_url)
        self._headers = {name: _resolve(value) for name, value in settings.headers.items()}
        self._raw_headers = settings.headers
        self.proxy = _proxy(self._url)
        """URL of the proxy that calls go through; None = none."""
        conceal(*self._secrets())

    @property
    def host(self) -> str:
        """The host, with its port when it is not the usual one; for messages."""
        return self._url.netloc.rpartition("@")[2]

    @property
    def address(self) -> str:
        """Scheme, host and path: nothing secret."""
        return f"{self._url.scheme}://{self.host}{self._url.path.rstrip('/')}"

    def url(self, path: str) -> str:
        """The URL of `path` below the base URL, with the base URL's query."""
        path, _, query = path.partition("?")
        queries = "&".join(part for part in (self._url.query, query) if part)
        return f"{self.address}/{path.lstrip('/')}{'?' + queries if queries else ''}"

    def headers(self, passing: Sequence[tuple[str, str]], path: str = "") -> list[tuple[str, str]]:
        """The headers of one request: ours and the user's before the program's of the same name.

        Args:
            passing: The program's.
            path: Of the request, below the base URL.
        """
        kept = [pair for pair in passing if pair[0].lower() not in self._replaced]
        if not any(name.lower() == "user-agent" for name, _ in [*kept, *self._own]):
            kept.append(("User-Agent", "vfx"))
        return kept + (self._own_of_anthropic if _is_anthropic(passing, path) else self._own)

    @cached_property
    def _own(self) -> list[tuple[str, str]]:
        own = {
            # What the transport unpacks; a program's own list may name what it does not.
            "accept-encoding": ("Accept-Encoding", "gzip, deflate"),
            "content-type": ("Content-Type", "application/json"),
        }
        if authorization := self._authorization():
            own["authorization"] = ("Authorization", authorization)
        own |= {name.lower(): (name, value) for name, value in self._headers.items() if value is not None}
        return [*own.values()]

    @cached_property
    def _own_of_anthropic(self) -> list[tuple[str, str]]:
        """With the key where Anthropic's API looks for it, whose `Authorization` is for tokens of another kind."""
        named = {name.lower() for name in self._headers}
        if self._key is None or not named.isdisjoint({"authorization", "x-api-key"}):
            return self._own
        own = [*self._own, ("x-api-key", self._key)]
        if self._url.hostname == ANTHROPIC_HOST:
            return [pair for pair in own if pair[0] != "Authorization"]
        # Gateways that speak Anthropic's dialect mostly want the key as they do for OpenAI's.
        return own

    @cached_property
    def _replaced(self) -> frozenset[str]:
        return _RESERVED | {name.lower() for name, _ in self._own}

    def _authorization(self) -> str | None:
        if self._key is not None:
            return f"Bearer {self._key}"
        if self.key_var is None and self._url.username is not None:
            return f"Basic {self._basic()}"
        return None

    def _basic(self) -> str:
        user, password = unquote(self._url.username or ""), unquote(self._url.password or "")
        return base64.b64encode(f"{user}:{password}".encode()).decode()

    def _secrets(self) -> Iterator[str | None]:
        yield self._key
        yield self._key and self._key.strip()
        for value in filter(None, self._headers.values()):
            yield value
            # A provider may repeat the token without its scheme.
            yield value.partition(" ")[2].strip()
        yield from (value for _, value in parse_qsl(self._url.query))
        if self._url.username is not None:
            # Without a password the name is the credential.
            yield unquote(self._url.password or self._url.username)
            yield self._basic()
        if self.proxy and (password := urlsplit(self.proxy).password):
            yield unquote(password)

    def mistakes(self) -> list[Mistake]:
        """What is wrong with the address, the key, the headers or the proxy."""
        found = [self._url_mistake, self._key_mistake(), self._proxy_mistake()]
        found += [self._header_mistake(name, value) for name, value in self._raw_headers.items()]
        return [mistake for mistake in found if mistake]

    def _key_mistake(self) -> Mistake | None:
        if self.key_var is None:
            return None
        if self._key is None:
            hint = f"export {self.key_var}, or name another with --client.api-key-var, or `none` for no key"
            return Mistake(f"the key for {self.host or 'the endpoint'} is not set", self.key_var, hint)
        if not _is_sendable(self._key):
            text = "the key has a line break, an outer space or another character that no header can carry"
            return Mistake(text, self.key_var, "set it again without; `$(cat FILE)` drops the last line break")
        return None

    def _header_mistake(self, name: str, value: str) -> Mistake | None:
        where = f"--client.headers.{name}"
        if not _TOKEN.fullmatch(name):
            return Mistake(f"{name!r} is no name for a header: letters, digits and - are expected", "--client.headers")
        if name.lower() in _RESERVED:
            return Mistake("this header is set by vfx", where, "leave it out")
        if self._headers[name] is None:
            variable = value.removeprefix("env:")
            return Mistake(f"the environment variable {variable!r} is not set", where, f"export {variable}")
        if not _is_sendable(self._headers[name] or ""):
            return Mistake("the value has a line break or another character that no header can carry", where)
        return None

    def _proxy_mistake(self) -> Mistake | None:
        if self.proxy is None or urlsplit(self.proxy).scheme in ("http", "https"):
            return None
        kind = urlsplit(self.proxy).scheme or "no"
        hint = f"use an http proxy, or reach {self._url.hostname} directly by naming it in NO_PROXY"
        return Mistake(f"the proxy for {self.host} has the scheme {kind}; expected http or https", "proxy", hint)


def _split(base_url: str) -> tuple[SplitResult, Mistake | None]:
    example = "such as https://api.example.com/v1"
    try:
        url = urlsplit(base_url)
        _ = url.port
    except ValueError:
        return SplitResult("", "", "", "", ""), Mistake("it is not a URL", "--client.base-url", example)
    if url.scheme not in ("http", "https"):
        return url, Mistake("it does not begin with http:// or https://", "--client.base-url", example)
    if not url.hostname:
        return url, Mistake("it names no host", "--client.base-url", example)
    if re.search(r"[\s\x00-\x1f\x7f]", base_url):
        return url, Mistake("it has a space or a line break", "--client.base-url", example)
    return url, None


def _resolve(value: str) -> str | None:
    """A header's value; None when the variable it refers to is not set."""
    return os.environ.get(value.removeprefix("env:")) if value.startswith("env:") else value


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip()


def _is_anthropic(passing: Sequence[tuple[str, str]], path: str) -> bool:
    """True for a call in Anthropic's dialect, whose SDKs tell its version also where the path is like OpenAI's."""
    head = path.lstrip("/").partition("?")[0].partition("/")[0]
    return head == "messages" or any(name.lower() == "anthropic-version" for name, _ in passing)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy(url: SplitResult) -> str | None:
    if not url.hostname or _is_loopback(url.hostname):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 30 ms that only remote endpoints need

    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.hostname):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
