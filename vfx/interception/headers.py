"""Which of a program's headers reach its provider: all but those that belong to one connection, or to vfx."""

from vfx.interception.exchange import Exchange
from vfx.interception.retries import KEY_HEADER

__all__ = ["passing"]

_KEPT_BACK = frozenset(
    {
        b"accept-encoding",
        b"api-key",
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"expect",
        b"host",
        KEY_HEADER,
        b"keep-alive",
        b"origin",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
    }
)


def passing(exchange: Exchange) -> list[tuple[str, str]]:
    """The program's headers that may reach the provider."""
    named = exchange.headers.get(b"connection", b"").lower().split(b",")
    kept_back = _KEPT_BACK.union(name.strip() for name in named)
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in exchange.header_lines
        if name not in kept_back
    ]
