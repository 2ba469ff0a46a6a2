"""Tells whether an answer is whole, and whether it would be right the next time, by its dialect. Pure."""

import json
from typing import Any, cast

from vfx.clients.base import ProviderRequest
from vfx.clients.tapes.lines import Answer
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS

__all__ = ["error_dialect", "is_lasting", "is_whole"]

# These depend on the time, or on who asks.
_PASSING_REFUSALS = frozenset({401, 403, 408, 409, 425, 429})

_BY_PATH = {dialect.path: dialect for dialect in DIALECTS.values()}


def is_lasting(request: ProviderRequest, answer: Answer) -> bool:
    """Whether the same answer would be right the next time: it is whole, or a refusal of what was asked."""
    if answer.error is not None:
        return 400 <= answer.status < 500 and answer.status not in _PASSING_REFUSALS
    return is_whole(request, answer.body)


def is_whole(request: ProviderRequest, body: bytes) -> bool:
    """Whether `body` answers `request` completely. What is no turn, such as a listing, is what it is.

    Args:
        request: What was asked.
        body: What has come with a status that is no error.
    """
    dialect = _BY_PATH.get(_path(request))
    if dialect is None or request.method != "POST":
        return not request.is_stream
    try:
        if not request.is_stream:
            dialect.read_completion(_object(body))
            return True
        stream = dialect.assemble(_object(request.body))
    except (ValueError, RecursionError):
        return False
    stream.feed(body)
    stream.finish()
    return stream.is_complete and stream.error is None


def error_dialect(request: ProviderRequest) -> Dialect:
    """The dialect in which an error is told to whoever has sent `request`."""
    path = _path(request)
    return ANTHROPIC if path.startswith(f"{ANTHROPIC.path}/") else _BY_PATH.get(path, CHAT)


def _path(request: ProviderRequest) -> str:
    return request.path.partition("?")[0]


def _object(raw: bytes) -> dict[str, Any]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - what a provider sends
    return cast("dict[str, Any]", value)
