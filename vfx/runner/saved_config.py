"""The configuration of a run as text that shows no secret, and from which the run can be started again."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vfx.redaction import MASK, redact
from vfx.runner.config import EvalConfig, Timeouts

__all__ = ["Line", "masked_config", "to_toml", "toml_lines"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# No bare `token` or `key`: a stop token or a sort key is no secret, and a masked one could not be run again.
_SECRET_FIELD = re.compile(r"(^|[_-])(api[_-]?key|access[_-]token|auth[_-]token|secret|password)$", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(r"(key|token|secret|password|signature|sig)$", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def masked_config(config: EvalConfig) -> dict[str, Any]:
    """The configuration as plain data: literal headers, and credentials in URLs, are `***`."""
    data = cast(
        "dict[str, Any]", to_jsonable_python(config, serialize_unknown=True, inf_nan_mode="constants", by_alias=False)
    )
    for tools in (data["taskset"].get("tools", {}), data["taskset"].get("task", {}).get("tools", {})):
        for entry in tools.values():
            entry["headers"] = {name: _masked_header(value) for name, value in entry["headers"].items()}
            if entry["url"] is not None:
                entry["url"] = _masked_url(entry["url"], every_parameter=True)
    return cast("dict[str, Any]", _masked(data))


def _masked_header(value: str) -> str:
    return value if value.startswith("env:") else MASK


def _masked_client(client: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluated model's, a judge's or a user's."""
    masked = dict(client)
    if isinstance(headers := masked.get("headers"), dict):
        masked["headers"] = {name: _masked_header(value) for name, value in cast("dict[str, str]", headers).items()}
    if isinstance(url := masked.get("base_url"), str):
        masked["base_url"] = _masked_url(url, every_parameter=True)
    return masked


def _masked(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if name == "client" and "type" in table:
            table = _masked_client(table)
        return {key: _masked(entry, key) for key, entry in table.items()}
    if isinstance(value, list):
        return [_masked(entry, name) for entry in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if value and _SECRET_FIELD.search(name):
        # A name in braces, such as {api_key}, is filled in when the program starts.
        return value if value.startswith(("env:", "{")) else MASK
    return redact(_masked_url(value) if _URL.fullmatch(value) else value)


def _masked_url(text: str, *, every_parameter: bool = False) -> str:
    try:
        url = urlsplit(text)
    except ValueError:
        return MASK
    netloc, query = url.netloc, url.query
    credentials, at, host = netloc.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        # Without a password the name is the credential.
        netloc = f"{user if colon else MASK}{colon and ':' + MASK}@{host}"
    if query:
        query = "&".join(_masked_parameter(part, every_parameter) for part in query.split("&"))
    return urlunsplit(url._replace(netloc=netloc, query=query))


def _masked_parameter(part: str, every: bool) -> str:  # noqa: FBT001 - private
    name, equals, value = part.partition("=")
    is_secret = every or _SECRET_PARAMETER.search(name) is not None
    return f"{name}={MASK}" if is_secret and (value or not equals) else part


def to_toml(config: EvalConfig) -> str:
    """The configuration as a TOML file that `vfx eval @ FILE` reads; what is unset by default is left out."""
    return "\n".join(line.text for line in toml_lines(config) if not line.is_comment) + "\n"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a configuration file."""

    text: str
    path: tuple[str, ...] = ()
    """The option that it sets; () for a header or an empty line."""
    is_comment: bool = False
    """True for an option that is unset, which TOML can't say, and for a bound that each task may set."""


def toml_lines(config: EvalConfig) -> Iterator[Line]:
    """The masked configuration as TOML, line by line."""
    return _table(masked_config(config), config, ())


def _table(table: Mapping[str, Any], model: BaseModel | None, path: tuple[str, ...]) -> Iterator[Line]:
    """The lines of a table: its own values first, since TOML gives what follows a header to that header."""
    inner: list[tuple[str, Mapping[str, Any], BaseModel | None]] = []
    own: list[Line] = []
    for key, value in table.items():
        if isinstance(value, dict) and (value or model is not None):
            below: Any = getattr(model, key, None)
            inner.append((key, cast("dict[str, Any]", value), below if isinstance(below, BaseModel) else None))
        else:
            is_comment = (value is None and not _is_set_to_none(model, key)) or _is_left_to_tasks(model, key)
            shown = "none" if is_comment and value is None else _value_text(value, getattr(model, key, None))
            text = f"{'# ' if is_comment else ''}{_key_text(key)} = {shown}"
            own.append(Line(text, (*path, key), is_comment))
    if path and any(not line.is_comment for line in own):
        yield Line("")
        yield Line(f"[{'.'.join(map(_key_text, path))}]")
    elif path and own:
        yield Line("", is_comment=True)
        yield Line(f"# [{'.'.join(map(_key_text, path))}]", is_comment=True)
    yield from own
    for key, entries, below in inner:
        yield from _table(entries, below, (*path, key))


def _is_set_to_none(model: BaseModel | None, name: str) -> bool:
    field = type(model).model_fields.get(name) if model is not None else None
    return field is not None and field.default_factory is None and field.default is not None


def _is_left_to_tasks(model: BaseModel | None, name: str) -> bool:
    # Read back, it would be one that was given, which goes before what the tasks say.
    return isinstance(model, Timeouts) and name not in model.model_fields_set


def _key_text(key: str) -> str:
    """A key as TOML writes it."""
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value_text(value: Any, original: Any = None) -> str:
    """A value as TOML writes it, on one line; None, which TOML does not have, is the text none.

    Args:
        value: As plain data.
        original: What it was made from, where that is known: a model tells which None is not its default.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        entries = cast("list[Any]", value)
        known = cast("Sequence[Any]", original) if isinstance(original, list | tuple) else [None] * len(entries)
        return f"[{', '.join(_value_text(entry, model) for entry, model in zip(entries, known, strict=True))}]"
    if isinstance(value, dict):
        model = original if isinstance(original, BaseModel) else None
        fields = cast("dict[str, Any]", value).items()
        shown = (
            f"{_key_text(key)} = {_value_text(entry, getattr(model, key, None))}"
            for key, entry in fields
            if entry is not None or _is_set_to_none(model, key)
        )
        return f"{{ {', '.join(shown)} }}" if value else "{}"
    return _string("none" if value is None else str(value))


def _string(text: str) -> str:
    """A basic string. What JSON escapes, TOML does alike, but for DEL and for lone surrogates, which it can't hold."""
    clean = text.encode("utf-8", "replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
