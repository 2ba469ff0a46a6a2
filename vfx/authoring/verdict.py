"""Reads what a judge has answered. Pure: text in, numbers out, or the reason why there are none.

Nothing is guessed: an answer that can be read in two ways is no answer, and no number is moved into its scale.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from vfx.messages import Message

__all__ = ["Form", "UnreadableError", "read_verdict"]

# Longer ones are no number that anyone means, and Python refuses to convert them at some length.
_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?")
_THOUGHTS = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_START = re.compile(r"[{\[]")
# What begins so was meant as JSON. A brace or a bracket in prose mostly goes on otherwise.
_MEANT = re.compile(r"""\{\s*["'}]|\[\s*[{\["]""")


class UnreadableError(ValueError):
    """An answer holds no verdict; the text says why, as a sentence that begins with `it`."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a verdict looks like."""

    low: float = 0.0
    high: float = 1.0
    criteria: Sequence[str] = ()
    """Names under `scores`; empty = there is one number, `score`."""
    is_whole: bool = False
    """Whether only whole numbers will do."""

    @property
    def example(self) -> str:
        """The form as a judge is asked for it."""
        if not self.criteria:
            return '{"reasoning": "...", "score": NUMBER}'
        scores = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: NUMBER" for name in self.criteria)
        return f'{{"reasoning": "...", "scores": {{{scores}}}}}'

    @property
    def schema(self) -> Mapping[str, Any]:
        """The form as a JSON schema."""
        bounds = (int(self.low), int(self.high)) if self.is_whole else (self.low, self.high)
        number = {"type": "integer" if self.is_whole else "number", "minimum": bounds[0], "maximum": bounds[1]}
        what: tuple[str, Any] = ("score", number)
        if self.criteria:
            scores = dict.fromkeys(self.criteria, number)
            what = ("scores", _closed(scores))
        return _closed({"reasoning": {"type": "string"}, what[0]: what[1]})


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def read_verdict(reply: Message, form: Form) -> Mapping[str, float]:
    """The numbers of a judge's answer.

    One JSON object is read wherever it stands: alone, in a code fence, between prose, behind a model's thoughts in
    `<think>`. The same object twice counts once. A number may be written as text, such as `"0.8"`.

    Args:
        reply: The answer.
        form: What was asked for.

    Returns:
        By criterion; by `score` when there is none.

    Raises:
        UnreadableError: It is empty, a refusal, a tool call, cut off, an array, more than one object, or has a number
            that is missing, none, or out of the scale.
    """
    text = _THOUGHTS.sub("", reply.text, count=1).strip()
    if not text:
        raise UnreadableError(_emptiness(reply))
    found: list[dict[str, Any]] = []
    for value in _values(text):
        if value not in found:
            found.append(value)
    if not found:
        raise UnreadableError("it holds no JSON object")
    if len(found) > 1:
        raise UnreadableError(f"it holds {len(found)} different JSON objects, expected one")
    return _numbers(found[0], form)


def _emptiness(reply: Message) -> str:
    if reply.refusal:
        return f"it is a refusal: {reply.refusal:.100}"
    if reply.tool_calls:
        return f"it is a call of the tool {reply.tool_calls[0].name!r:.60}, without text"
    return "it is empty"


def _values(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in a text, in order."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    position = 0
    while start := _START.search(text, position):
        position = start.start()
        try:
            value, position = decoder.raw_decode(text, position)
        except UnreadableError:
            raise
        except (ValueError, RecursionError):
            if _MEANT.match(text, position):
                raise UnreadableError("its JSON is cut off or broken") from None
            position += 1
            continue
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)
        elif any(isinstance(entry, dict | list) for entry in value) or text.strip(" \n`").startswith("["):
            raise UnreadableError("it holds a JSON array, expected an object")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise UnreadableError("its JSON object has a key twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableError(f"{name} is no number")


def _numbers(found: Mapping[str, Any], form: Form) -> Mapping[str, float]:
    if not form.criteria:
        return {"score": _number(found, "score", form)}
    scores = found.get("scores")
    if not isinstance(scores, dict):
        raise UnreadableError('its JSON object has no object "scores"')
    return {name: _number(cast("dict[str, Any]", scores), name, form) for name in form.criteria}


def _number(fields: Mapping[str, Any], name: str, form: Form) -> float:
    shown = json.dumps(name, ensure_ascii=False)
    if name not in fields:
        raise UnreadableError(f"it gives no {shown}")
    value = fields[name]
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableError(f"its {shown} is {json.dumps(value, ensure_ascii=False):.60}, expected a number")
    if not form.low <= value <= form.high or not math.isfinite(value):
        raise UnreadableError(f"its {shown} is {_short(value)}, outside of {form.low:g} to {form.high:g}")
    if form.is_whole and value != int(value):
        raise UnreadableError(f"its {shown} is {value:g}, expected a whole number")
    return float(value)


def _short(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) or abs(value) < 10**15 else "a huge number"
