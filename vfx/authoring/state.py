"""What a rollout's tools, users, stops and rewards share while it runs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from vfx.authoring.any_text import with_any_text

__all__ = ["State", "read_state"]

S = TypeVar("S", bound="State")

_EXPECTED = {
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "list_type": "expected a list",
    "set_type": "expected a list",
    "tuple_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
}


class State(BaseModel):
    """Subclass it, give every field a default, and name it as a task's `state_type`.

    Each rollout starts with one of its own. Its tool servers read and write it through the interception, which refuses
    what does not fit; hooks ask for it by the parameter name `state`; the trace keeps what it was at the end.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, validate_default=True, allow_inf_nan=False, populate_by_name=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Find mistakes when the class is made, not when a rollout runs."""
        super().__pydantic_init_subclass__(**kwargs)
        if missing := [name for name, field in cls.model_fields.items() if field.is_required()]:
            raise TypeError(
                f"{cls.__name__}: a rollout starts with the defaults, so each field of a state needs one; "
                f"without: {', '.join(missing)}"
            )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Text as Python has it: what tools read holds lone surrogates, which pydantic's own text refuses."""
        return with_any_text(handler(source))


def read_state(state_type: type[S], data: Any) -> S:
    """The state that plain data describe.

    Raises:
        ValueError: They don't fit; says which field, and what was expected there.
    """
    try:
        return state_type.model_validate(data)
    except ValidationError as error:
        raise ValueError("; ".join(_complaints(state_type, error))) from error


def _complaints(state_type: type[State], error: ValidationError) -> Iterator[str]:
    for details in error.errors(include_url=False):
        place = ".".join(map(str, details["loc"]))
        match details["type"]:
            case "extra_forbidden" if len(details["loc"]) == 1:
                yield f"{place}: there is no such field; there are: {', '.join(state_type.model_fields) or 'none'}"
                continue
            case "value_error" | "assertion_error":
                text = str(_context(details)["error"]) or "is not valid"
            case kind:
                text = _EXPECTED.get(kind) or re.sub("^Input should be ", "expected ", details["msg"])
        yield f"{place + ': ' if place else ''}{text}, got {details['input']!r:.100}"


def _context(details: Any) -> Mapping[str, Any]:
    return details.get("ctx", {})
