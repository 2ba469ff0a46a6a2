"""Fields of JSON that other people wrote: what has another type than expected counts as missing, or is refused."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

__all__ = [
    "Json",
    "as_count",
    "as_list",
    "as_object",
    "as_objects",
    "as_text",
    "error_words",
    "given",
    "join_pieces",
    "require_list",
    "require_object",
]

Json = Mapping[str, Any]


def as_object(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing else of it, and none when it is no list."""
    return [cast("dict[str, Any]", item) for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Any) -> str | None:
    """`value` if it is text and not empty, else None."""
    return value if isinstance(value, str) and value else None


def as_count(value: Any) -> int | None:
    """`value` if it is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def given(body: Json, names: Collection[str]) -> dict[str, Any]:
    """Those fields of `body` that are among `names` and not null, in their order."""
    return {name: value for name, value in body.items() if value is not None and name in names}


def error_words(error: Any) -> str:
    """What a provider's error says: its message and code, or all of it when it has no message."""
    fields = as_object(error)
    message, code = as_text(fields.get("message")), as_text(fields.get("code"))
    if message is None:
        return str(error)
    return message if code is None or code in message else f"{message} ({code})"


def require_object(value: Any, where: str) -> dict[str, Any]:
    """`value`, which is an object; an empty one for None.

    Raises:
        ValueError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {type(value).__name__}")  # noqa: TRY004
    return cast("dict[str, Any]", value)


def require_list(value: Any, where: str) -> list[Any]:
    """`value`, which is a list; an empty one for None.

    Raises:
        ValueError: It is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list, got {type(value).__name__}")  # noqa: TRY004
    return cast("list[Any]", value)


def join_pieces(pieces: Iterable[str]) -> str:
    """The text that was streamed in `pieces`."""
    listed = [*pieces]
    text = "".join(listed)
    if not any("\ud800" <= piece[-1:] <= "\udbff" for piece in listed):
        return text
    # The halves of one character came in two pieces; a half without a partner stays as it is.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
