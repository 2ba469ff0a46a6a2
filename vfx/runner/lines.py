"""A trace as one line of a run's files. A finished rollout has been paid for, so there is a line whatever it holds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_jsonable_python

from vfx.errors import TaskError
from vfx.trace.record import ErrorRecord, Trace, encode_record

__all__ = ["encode_trace"]

# The encoder keeps the interpreter for itself from its beginning to its end, and with it the event loop.
LONG_LISTS = ("nodes", "calls")
AT_ONCE = 32


def encode_trace(trace: Trace, extra: Mapping[str, Any]) -> bytes:
    """The line without its end, `extra` first. Meant for a worker thread: other threads run in between.

    What has no JSON form becomes text, and an error on the trace says so.
    """
    try:
        return _encode({**extra, **trace.to_record()})
    except (ValueError, TypeError, RecursionError) as error:
        what = f"something in the record has no JSON form and was kept as text: {error}"
    trace.errors.append(ErrorRecord.of(TaskError(what)))
    try:
        return _encode(_as_text({**extra, **trace.to_record()}))
    except (ValueError, TypeError, RecursionError):
        # A structure that holds itself.
        trace.info = {}
        return _encode(_as_text({**extra, **trace.to_record()}))


def _encode(record: Mapping[str, Any]) -> bytes:
    long = {name: record[name] for name in LONG_LISTS if len(record[name]) > AT_ONCE}
    if not long:
        return encode_record(record)
    pieces = [encode_record({name: value for name, value in record.items() if name not in long})[:-1]]
    pieces += (b',"%b":[%b]' % (name.encode(), _encode_items(items)) for name, items in long.items())
    return b"".join(pieces) + b"}"


def _encode_items(items: Sequence[Any]) -> bytes:
    starts = range(0, len(items), AT_ONCE)
    return b",".join(encode_record(items[start : start + AT_ONCE])[1:-1] for start in starts)  # pyright: ignore[reportArgumentType]


def _as_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return {key if isinstance(key, str) else str(key): _as_text(entry) for key, entry in entries}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_text(entry) for entry in cast("Iterable[Any]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return to_jsonable_python(value, fallback=repr)
