"""What a tool returned, as the parts of an MCP result."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_json, to_jsonable_python

__all__ = ["ResultError", "to_parts"]

_KINDS = frozenset({"text", "image", "audio", "resource", "resource_link", "image_url"})


class ResultError(Exception):
    """A tool returned what can't be told to a model."""


def to_parts(value: Any) -> list[dict[str, Any]]:
    """The parts of a result: text as it is, parts of content as MCP has them, anything else as JSON.

    Args:
        value: Text, a part or a list of parts (in the form of MCP or of chat completions), or what JSON can hold.

    Raises:
        ResultError: It is none of these.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [_text(value)]
    if _is_part(value):
        return [_part(value)]
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        entries = cast("Sequence[Any]", value)
        if any(map(_is_part, entries)) and all(_is_part(entry) or isinstance(entry, str) for entry in entries):
            return [_text(entry) if isinstance(entry, str) else _part(entry) for entry in entries]
    return [_text(_json(cast("Any", value)))]


def _is_part(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    part = cast("Mapping[str, Any]", value)
    if not isinstance(kind := part.get("type"), str):
        return False
    # A record that happens to have a type is data.
    keys = {"text": "text", "image": "data", "audio": "data", "image_url": "image_url", "resource": "resource"}
    return kind in _KINDS and keys.get(kind, "uri") in part


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind == "text":
        return _text(str(part["text"]))
    if kind == "image_url":
        return _image_of_url(part)
    if kind in ("image", "audio") and isinstance(part["data"], bytes | bytearray):
        part = {**part, "data": base64.b64encode(part["data"]).decode()}
    if kind in ("image", "audio") and "mimeType" not in part:
        raise ResultError(f"the {kind} in its result has no mimeType, such as image/png")
    return dict(part)


def _image_of_url(part: Mapping[str, Any]) -> dict[str, Any]:
    given = part["image_url"]
    url = str(cast("Mapping[str, Any]", given).get("url", "") if isinstance(given, Mapping) else given)
    head, comma, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        return {"type": "resource_link", "uri": url, "name": "image"}
    return {"type": "image", "mimeType": head.removeprefix("data:").removesuffix(";base64"), "data": data}


def _text(text: str) -> dict[str, Any]:
    # Halves of a pair become one character; a lone one, which no JSON may hold, U+FFFD.
    return {"type": "text", "text": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


def _json(value: Any) -> str:
    try:
        plain = to_jsonable_python(value)
        try:
            return json.dumps(plain, ensure_ascii=False, allow_nan=isinstance(plain, float))
        except ValueError:  # A number in it is not finite, which JSON has as text only.
            return json.dumps(json.loads(to_json(plain, inf_nan_mode="strings")), ensure_ascii=False)
    except ValueError as error:
        raise ResultError(f"what it returned can't be told as JSON: {error}") from error
