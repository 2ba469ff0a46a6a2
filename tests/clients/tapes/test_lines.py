import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.clients.tapes.lines import (
    Answer,
    Recording,
    clean,
    error_fields,
    packed,
    read_answer,
    read_error,
    recording_fields,
    unpacked,
)
from vfx.errors import ProviderError
from vfx.redaction import conceal

SECRET = "sk-5be1d4472c90"


def again(answer: Answer) -> Answer:
    """An answer, written and read."""
    recording = Recording(1, 0.0, ("a", "b", "c"), "POST", "x", "", b"{}", answer)
    return read_answer(json.loads(json.dumps(recording_fields(recording, "{}"))))


@given(st.binary(max_size=60))
def test_bytes_come_back_from_json(body: bytes) -> None:
    assert unpacked(json.loads(json.dumps(packed(body)))) == body


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=8))
def test_a_stream_comes_back_with_its_borders(pieces: list[bytes]) -> None:
    answer = Answer(200, [], b"".join(pieces), [len(piece) for piece in pieces])
    assert again(answer) == answer


@given(st.lists(st.integers(1, 20), max_size=12), st.integers(0, 30), st.integers(0, 3))
def test_a_secret_is_masked_wherever_a_stream_is_cut(cuts: list[int], before: int, times: int) -> None:
    conceal(SECRET)
    body = b"x" * before + SECRET.encode() * times + "\u00fc".encode()
    chunks: list[int] = []
    for cut in cuts:
        if sum(chunks) + cut < len(body):
            chunks.append(cut)
    chunks.append(len(body) - sum(chunks))
    kept = again(Answer(200, [], body, chunks))
    assert kept.body == body.replace(SECRET.encode(), b"***")
    assert sum(kept.chunks or ()) == len(kept.body)


def test_secrets_among_bytes_that_are_no_text_are_masked() -> None:
    conceal(SECRET)
    assert clean(b"\xff" + SECRET.encode() + b"\xfe") == b"\xff***\xfe"
    assert clean(b"\xff\xfe") == b"\xff\xfe"


@pytest.mark.parametrize(
    "error",
    [
        None,
        ProviderError("no"),
        ProviderError("no such model", fatal="HTTP 404 from x"),
        ProviderError("too long", truncated=True, is_final=True),
    ],
)
def test_a_refusal_comes_back_as_it_was_told(error: ProviderError | None) -> None:
    read = read_error(again(Answer(404, [], b"{}", None, error_fields(error))))
    if error is None:
        assert read is None
        return
    assert read is not None
    assert str(read) == str(error)
    assert (read.fatal, read.truncated, read.is_final) == (error.fatal, error.truncated, error.is_final)
    assert read.status == 404
