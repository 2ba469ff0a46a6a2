"""What one line of a tape says, to and from plain data. Pure.

Nothing of a request's headers is kept, of the answer's only those that an SDK reads, and no secret that this process
knows.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from vfx.clients.tapes.deltas import Delta
from vfx.errors import ProviderError
from vfx.redaction import redact

__all__ = [
    "Answer",
    "Recording",
    "clean",
    "error_fields",
    "packed",
    "read_answer",
    "read_delta",
    "read_error",
    "recording_fields",
    "unpacked",
]

HEADERS = frozenset({"content-type", "openai-model", "openai-version", "request-id", "x-models-etag", "x-request-id"})
"""Response headers that are kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    chunks: Sequence[int] | None = None
    """Lengths of the pieces in which a stream came; None = it was no stream."""
    error: Mapping[str, Any] | None = None
    """Of a refusal: what its `ProviderError` was made of."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange that is to be kept."""

    number: int
    at: float
    """When it was asked, in seconds since the epoch."""
    keys: tuple[str, ...]
    """By which the request is found: the same bytes, the same but for what was masked, and but for times as well."""
    method: str
    path: str
    """Without a query."""
    query: str
    """A digest of the query; empty when there was none."""
    request: bytes
    """Without secrets."""
    answer: Answer


def recording_fields(recording: Recording, request: str | Mapping[str, Any]) -> dict[str, Any]:
    """The line of an exchange, with its request in the form in which it is kept."""
    line: dict[str, Any] = {"n": recording.number, "at": round(recording.at, 3), "keys": recording.keys}
    if recording.method != "POST":
        line["method"] = recording.method
    line["path"] = recording.path
    if recording.query:
        line["query"] = recording.query
    return line | {"request": request} | _answer_fields(recording.answer)


def _answer_fields(answer: Answer) -> dict[str, Any]:
    """The part of a line that holds the answer."""
    fields: dict[str, Any] = {} if answer.status == 200 else {"status": answer.status}
    if headers := {name: redact(value) for name, value in answer.headers if name.lower() in HEADERS}:
        fields["headers"] = headers
    body, chunks = _redacted(answer.body, answer.chunks)
    if chunks is not None:
        fields["chunks"] = chunks
    if answer.error is not None:
        fields["error"] = {name: redact(v) if isinstance(v, str) else v for name, v in answer.error.items()}
    # Last, so that whoever looks at a line sees all else first.
    return fields | {"answer": packed(body)}


def read_answer(line: Mapping[str, Any]) -> Answer:
    """The answer in a line.

    Raises:
        ValueError: There is none that could be used (also KeyError, TypeError, AttributeError).
    """
    body = unpacked(line["answer"])
    chunks: Sequence[int] | None = line.get("chunks")
    if chunks is not None and (sum(chunks) != len(body) or min(chunks, default=1) < 1):
        raise ValueError("the lengths of the chunks are not those of the answer")
    headers = [(str(name), str(value)) for name, value in line.get("headers", {}).items()]
    return Answer(int(line.get("status", 200)), headers, body, chunks, line.get("error"))


def read_delta(request: Mapping[str, Any]) -> tuple[int, Delta]:
    """The exchange that a request is like, and what differs.

    Raises:
        ValueError: It does not say (also KeyError, TypeError).
    """
    return int(request["like"]), Delta(int(request["start"]), int(request["end"]), str(request["middle"]))


def error_fields(error: ProviderError | None) -> dict[str, Any] | None:
    """What a refusal was told as, in the form that a line holds."""
    if error is None:
        return None
    fields = {"fatal": error.fatal, "truncated": error.truncated, "is_final": error.is_final}
    return {"message": str(error)} | {name: value for name, value in fields.items() if value}


def read_error(answer: Answer) -> ProviderError | None:
    """What a recorded refusal was told as; None when it was none."""
    fields = answer.error
    if fields is None:
        return None
    return ProviderError(
        str(fields.get("message")),
        status=answer.status,
        fatal=fields.get("fatal"),
        truncated=bool(fields.get("truncated")),
        is_final=bool(fields.get("is_final")),
    )


def clean(body: bytes) -> bytes:
    """`body` without secrets."""
    # One character for each byte: what is no secret stays as it is, whatever the encoding.
    text = body.decode("latin-1")
    redacted = redact(text)
    return body if redacted == text else redacted.encode("latin-1")


def _redacted(body: bytes, chunks: Sequence[int] | None) -> tuple[bytes, Sequence[int] | None]:
    """An answer without secrets, and its borders where they are then."""
    whole = clean(body)
    if whole == body:
        return body, chunks
    if chunks is not None:
        lengths, position, reached = list[int](), 0, 0
        for length in chunks:
            position += length
            border = len(whole) if position == len(body) else max(reached, min(len(clean(body[:position])), len(whole)))
            lengths.append(border - reached)
            reached = border
        chunks = [length for length in lengths if length]
    return whole, chunks


def packed(body: bytes) -> str | dict[str, str]:
    """Bytes as JSON can hold them."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}


def unpacked(given: Any) -> bytes:
    """The bytes that `packed` was given.

    Raises:
        ValueError: It is nothing that `packed` gives (also KeyError, TypeError).
    """
    if isinstance(given, str):
        return given.encode("utf-8")
    return base64.b64decode(cast("Mapping[str, str]", given)["base64"], validate=True)
