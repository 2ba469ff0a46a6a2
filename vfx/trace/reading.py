"""Traces from the records that runs keep: the inverse of `Trace.to_record`, for resuming, re-scoring and viewing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from vfx.messages import Message, ToolCall, Usage
from vfx.trace.record import (
    SCHEMA_VERSION,
    Agent,
    Call,
    ErrorRecord,
    Rewrite,
    Score,
    SideCall,
    Span,
    TaskRef,
    Trace,
)

__all__ = ["read_lines", "read_trace"]

R = TypeVar("R")


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a JSONL file with the offsets at which they start; a torn last line is not among them.

    Lines end at the newline byte alone: JSON text may hold every other character that readers take for a line's end.
    """
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield offset, line[:-1]
            offset += len(line)


def read_trace(line: bytes | str) -> Trace:
    """The trace that one line of `traces.jsonl` or `attempts.jsonl` holds.

    Raises:
        ValueError: The line is not JSON, not a trace, or of a newer schema.
    """
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"expected a trace, got {type(record).__name__}")  # noqa: TRY004 - what a file holds
    data = cast("dict[str, Any]", record)
    version = data.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ValueError(f"schema_version: expected at most {SCHEMA_VERSION}, got {version!r}")
    try:
        return _trace(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a trace: {type(error).__name__}: {error}") from error


def _trace(data: Mapping[str, Any]) -> Trace:
    trace = Trace(
        id=data["id"],
        task=_fields(TaskRef, data["task"]),
        rollout=data["rollout"],
        agent=_fields(Agent, data["agent"]),
        attempt=data["attempt"],
    )
    for node in data["nodes"]:
        trace.graph.append(_message(node["message"]), node["parent"], sampled=node["sampled"])
    trace.calls = [_call(call) for call in data["calls"]]
    trace.rewrites = [
        _fields(Rewrite, {**rewrite, "before": _message(rewrite["before"]), "after": _message(rewrite["after"])})
        for rewrite in data.get("rewrites", ())
    ]
    trace.side_calls = [_side_call(call) for call in data.get("side_calls", ())]
    trace.state = data.get("state")
    trace.rewards = {name: _fields(Score, score) for name, score in data["rewards"].items()}
    trace.metrics = dict(data["metrics"])
    trace.errors = [_fields(ErrorRecord, error) for error in data["errors"]]
    trace.stop_condition = data["stop_condition"]
    trace.info = dict(data["info"])
    trace.timing = {name: _fields(Span, span) for name, span in data["timing"].items()}
    return trace


def _fields(kind: type[R], data: Mapping[str, Any]) -> R:
    """An older record may lack fields, a newer one of the same schema have more: both are read."""
    known = {field.name for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return kind(**{name: value for name, value in data.items() if name in known})


def _message(data: Mapping[str, Any]) -> Message:
    calls = tuple(_fields(ToolCall, call) for call in data.get("tool_calls", ()))
    return _fields(Message, {**data, "tool_calls": calls, "opaque": tuple(data.get("opaque", ()))})


def _call(data: Mapping[str, Any]) -> Call:
    return _fields(Call, {**data, **_exchange(data)})


def _side_call(data: Mapping[str, Any]) -> SideCall:
    reply = data.get("reply")
    read = {
        "messages": [_message(message) for message in data["messages"]],
        "reply": None if reply is None else _message(reply),
    }
    return _fields(SideCall, {**data, **_exchange(data), **read})


def _exchange(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What every exchange with a model has."""
    error = data.get("error")
    return {
        "span": _fields(Span, data["span"]),
        "usage": _fields(Usage, data["usage"]),
        "error": None if error is None else _fields(ErrorRecord, error),
    }
