import json
from typing import Any

import pytest

from tests.support.native_replies import message, message_stream, response, response_stream
from tests.support.replies import Reply, completion, stream
from vfx.clients.base import ProviderRequest
from vfx.clients.tapes.lines import Answer
from vfx.clients.tapes.whole import error_dialect, is_lasting, is_whole

WHOLE = {"chat/completions": completion("x"), "responses": response("x"), "messages": message("x")}
STREAMED = {"chat/completions": stream("x", "y"), "responses": response_stream("x"), "messages": message_stream("x")}


def ask(path: str, **fields: Any) -> ProviderRequest:
    body = json.dumps({"model": "m", **fields}).encode()
    return ProviderRequest(path, body, is_stream=bool(fields.get("stream")))


def chunks(reply: Reply) -> list[bytes]:
    return [bytes(chunk) for chunk in reply.chunks or ()]


@pytest.mark.parametrize("path", WHOLE)
def test_a_whole_answer_is_told_from_a_part(path: str) -> None:
    body = bytes(WHOLE[path].body or b"")
    assert is_whole(ask(f"{path}?beta=true"), body)
    for part in (body[:-1], b"", b"[]", b'{"error":{"message":"busy"}}'):
        assert not is_whole(ask(path), part)


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_is_whole_with_what_ends_it(path: str) -> None:
    pieces = chunks(STREAMED[path])
    states = [is_whole(ask(path, stream=True), b"".join(pieces[:count])) for count in range(len(pieces) + 1)]
    assert states == sorted(states)
    assert (states[0], states[-1]) == (False, True)


def test_what_is_no_turn_is_what_it_is() -> None:
    assert is_whole(ProviderRequest("models", b"", method="GET"), b"{}")
    assert is_whole(ask("messages/count_tokens"), b'{"input_tokens":1}')


def test_a_request_that_is_no_json_has_no_whole_stream() -> None:
    assert not is_whole(ProviderRequest("chat/completions", b"{", is_stream=True), b"data: [DONE]\n\n")


@pytest.mark.parametrize("status", range(300, 600, 1))
def test_of_refusals_those_of_what_was_asked_last(status: int) -> None:
    passing = {401, 403, 408, 409, 425, 429}
    answer = Answer(status, [], b"{}", None, {"message": "no"})
    assert is_lasting(ask("messages"), answer) == (400 <= status < 500 and status not in passing)


def test_errors_are_told_in_the_dialect_of_the_request() -> None:
    body = json.loads(error_dialect(ask("messages/count_tokens")).error_body("no", type="x"))
    assert body["type"] == "error"
    assert json.loads(error_dialect(ask("unknown")).error_body("no", type="x"))["error"]["message"] == "no"
