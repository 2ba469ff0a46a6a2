"""Puts into words why a provider refused a call."""

import json
from collections.abc import Sequence
from typing import Any, cast

from vfx.clients.base import ProviderRequest
from vfx.dialects.overflow import is_context_overflow
from vfx.dialects.routes import CHAT
from vfx.errors import ProviderError
from vfx.redaction import redact

__all__ = ["is_out_of_quota", "refusal"]

EXCERPT = 300
# Those who answer so do it to every call of the run.
_FATAL = frozenset({301, 302, 303, 307, 308, 401, 403})


def refusal(
    request: ProviderRequest,
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    host: str,
    key_var: str | None,
    suffix: str = "",
) -> ProviderError:
    """What a person should know about an answer that is an error: who, what, for which model, and the way out.

    Args:
        request: What was refused.
        status: Of the answer.
        headers: Of the answer.
        body: Of the answer.
        host: For the message.
        key_var: Name of the variable that holds the key; None = there is none.
        suffix: Ends the first part of the message, such as " (after 3 attempts)".
    """
    model = _model(request)
    text = f"HTTP {status} from {host}" + (f" for model {model!r}" if model else "") + suffix
    location = next((value for name, value in headers if name.lower() == "location"), "")
    words = _excerpt(body)
    if 300 <= status < 400:
        words = f"it redirects{' to ' + location if location else ''}, give the final address as --client.base-url"
    if words:
        text += f": {words}"
    if status in (401, 403):
        text += f" (the key is read from {key_var})" if key_var else " (no key was sent: --client.api-key-var is none)"
    path = request.path.partition("?")[0]
    if status in (404, 405) and request.method == "POST" and path != CHAT.path:
        text += f" (the program calls {path}: does this endpoint serve it?)"
    fatal = f"HTTP {status} from {host}" if _is_fatal(request, status, body) else None
    return ProviderError(redact(text), status=status, fatal=fatal, truncated=is_context_overflow(status, body))


def is_out_of_quota(status: int, body: bytes) -> bool:
    """True for a 429 that no waiting helps against: the account has no credit left."""
    return status == 429 and b'"insufficient_quota"' in body[:65536]


def _is_fatal(request: ProviderRequest, status: int, body: bytes) -> bool:
    # A listing of models may be missing where every model call works.
    return status in _FATAL or (status == 404 and request.method == "POST") or is_out_of_quota(status, body)


def _model(request: ProviderRequest) -> str | None:
    if request.model:
        return request.model
    body = _json(request.body)
    return str(body["model"]) if body.get("model") else None


def _json(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _excerpt(body: bytes) -> str:
    """The provider's own words, on one line."""
    fields = _json(body)
    error = fields.get("error")
    nested = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
    said = nested or fields.get("message") or fields.get("detail")
    text = said if isinstance(said, str) else body.decode("utf-8", "replace")
    # Masked before it is cut: half a secret would not be recognised.
    line = "".join(char if char.isprintable() else " " for char in redact(text))
    line = " ".join(line.split())
    return line if len(line) <= EXCERPT else line[:EXCERPT] + "…"
