"""How a caller shows that a route is for it, and how everybody else is refused."""

from hashlib import blake2b

from vfx.interception.exchange import Exchange

__all__ = ["deny", "digest", "given_secret", "is_json"]


def given_secret(exchange: Exchange) -> bytes:
    """The secret that came along; empty when none did."""
    scheme, _, given = exchange.headers.get(b"authorization", b"").partition(b" ")
    return given.strip() if scheme.lower() == b"bearer" else exchange.headers.get(b"x-api-key", b"")


def digest(secret: bytes) -> bytes:
    """What secrets are looked up by: what a look-up's timing tells about it tells nothing about the secret."""
    return blake2b(secret, digest_size=16).digest()


def is_json(exchange: Exchange) -> bool:
    """False for what browsers send to any host without asking it first: other types, and none."""
    return exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == b"application/json"


async def deny(exchange: Exchange) -> None:
    """Refuse a wrong secret, whatever is wrong with it."""
    await exchange.refuse(
        401,
        "this key opens nothing here",
        type="authentication_error",
        code="invalid_api_key",
        www_authenticate="Bearer",
    )
