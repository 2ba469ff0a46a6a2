"""Text as Python has it. Data sets hold lone surrogates, which pydantic's own text refuses."""

from collections.abc import Callable
from typing import Any, cast

from pydantic_core import core_schema

__all__ = ["with_any_text"]

# What stands there is data and no schema.
_OPAQUE = ("default", "expected", "metadata", "serialization")


def with_any_text(schema: Any) -> Any:
    """`schema` with every text that has no bounds replaced by one that takes any `str` as it is."""
    if isinstance(schema, list):
        return [with_any_text(entry) for entry in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    if given.get("type") == "str" and not given.keys() - {"type", "ref", "metadata", "serialization"}:
        return core_schema.no_info_wrap_validator_function(_take_text, core_schema.str_schema(), ref=given.get("ref"))
    return {key: value if key in _OPAQUE else with_any_text(value) for key, value in given.items()}


def _take_text(value: Any, validate: Callable[[Any], str]) -> str:
    return value if type(value) is str else validate(value)
