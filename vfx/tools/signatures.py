"""What the model is told of a tool, and how the arguments of its calls become a method's: from the signature alone."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

__all__ = ["ArgumentError", "Signature"]

_SECTION = re.compile(r"[A-Z][a-z]+:")
_ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


class ArgumentError(Exception):
    """A call's arguments don't fit; the text tells the model what to change."""


class _Untitled(GenerateJsonSchema):
    """Without the titles that pydantic makes up, which the model would have to read."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True)
class Signature:
    """One tool, before it is called."""

    name: str
    function: Callable[..., Any]

    @cached_property
    def is_async(self) -> bool:
        """Whether it runs in the loop."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def description(self) -> str:
        """Its docstring, without the section that describes the arguments."""
        return _split_docstring(self.function)[0]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of its arguments."""
        schema = self._model.model_json_schema(by_alias=True, schema_generator=_Untitled)
        schema.pop("title", None)
        return {"type": "object", "properties": {}, **schema}

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The method's arguments; what was left out keeps the method's own default.

        Raises:
            ArgumentError: They don't fit.
        """
        try:
            given = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ArgumentError(self._complaint(error)) from error
        fields = type(given).model_fields
        return {cast("str", fields[name].alias): getattr(given, name) for name in given.model_fields_set}

    @cached_property
    def _model(self) -> type[BaseModel]:
        hints = get_type_hints(self.function, include_extras=True)
        described = _split_docstring(self.function)[1]
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(list(inspect.signature(self.function).parameters.values())[1:]):
            hint = hints[parameter.name]
            default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
            has_own = any(isinstance(e, FieldInfo) and e.description for e in getattr(hint, "__metadata__", ()))
            description = {} if has_own else {"description": described.get(parameter.name)}
            # A name of its own for each field: pydantic warns of some that tools use, such as `json` and `copy`.
            fields[f"argument_{number}"] = (hint, Field(default, alias=parameter.name, **cast("Any", description)))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        return create_model(f"{self.name}_arguments", __config__=config, **fields)

    def _complaint(self, error: ValidationError) -> str:
        names = ", ".join(str(field.alias) for field in self._model.model_fields.values()) or "none"
        lines: list[str] = []
        for details in error.errors(include_url=False, include_context=False):
            place = ".".join(map(str, details["loc"]))
            match details["type"]:
                case "extra_forbidden" if len(details["loc"]) == 1:
                    lines.append(f"{place}: there is no such argument; there are: {names}")
                case "missing":
                    lines.append(f"{place}: is required")
                case _:
                    text = re.sub("^Input should be ", "expected ", details["msg"])
                    lines.append(f"{place}: {text}, got {details['input']!r:.100}")
        return f"the arguments of {self.name} don't fit: " + "; ".join(lines)


def _split_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring without its `Args:`, and what is said there of each parameter."""
    kept: list[str] = []
    arguments: dict[str, str] = {}
    inside, current, indent = False, "", 0
    for line in (inspect.getdoc(function) or "").splitlines():
        text = line.strip()
        if not line.startswith(" ") and _SECTION.fullmatch(text):
            inside = text in ("Args:", "Arguments:", "Parameters:")
            indent = 0
            if inside:
                continue
        elif inside and text:
            depth = len(line) - len(line.lstrip())
            if depth == 0:
                inside = False
            else:
                indent = indent or depth
                entry = _ENTRY.fullmatch(text) if depth <= indent else None
                if entry:
                    current = entry[1]
                    arguments[current] = entry[2]
                elif current:
                    arguments[current] = f"{arguments[current]} {text}".strip()
                continue
        if not inside:
            kept.append(line)
    return "\n".join(kept).strip(), arguments
