import json
from typing import Any

import anyio
import httpx
import pytest

from tests.interception.stage import BODY, Stage, new_session, staged
from tests.support.provider import Reply, completion, stream
from vfx.interception.session import Limits
from vfx.messages import Usage

pytestmark = pytest.mark.anyio

CUT: dict[str, Any] = {"finish_reason": None, "usage": None, "is_done": False}


async def read_all(response: httpx.Response) -> tuple[list[bytes], bool]:
    """The pieces that came, and whether the body was ended properly."""
    pieces: list[bytes] = []
    try:
        async for piece in response.aiter_raw():
            pieces.append(piece)  # noqa: PERF401 - what came before the break is kept
    except httpx.RemoteProtocolError:
        return pieces, False
    return pieces, True


async def ask_stream(stage: Stage, **fields: Any) -> tuple[bytes, bool]:
    body = json.dumps(BODY | {"stream": True} | fields)
    headers = {"Content-Type": "application/json"}
    async with stage.http.stream("POST", "/chat/completions", content=body, headers=headers) as response:
        assert response.status_code == 200
        pieces, is_whole = await read_all(response)
    return b"".join(pieces), is_whole


async def test_stream_passes_byte_for_byte_and_becomes_a_turn() -> None:
    reply = stream("fo", "ur \u4f60", "")
    async with staged(reply) as stage:
        body, is_whole = await ask_stream(stage)
    assert (body, is_whole) == (b"".join(reply.chunks or ()), True)
    assert stage.session.trace.last_reply == "four \u4f60"
    assert (stage.call.usage, stage.call.finish_reasons) == (Usage(5, 3), ("stop",))


async def test_pieces_arrive_as_they_are_sent() -> None:
    reply = stream("a", "b", ending="hang", **CUT)
    async with (
        staged(reply) as stage,
        stage.http.stream(
            "POST",
            "/chat/completions",
            content=json.dumps(BODY | {"stream": True}),
            headers={"Content-Type": "application/json"},
        ) as response,
    ):
        pieces = response.aiter_raw()
        got = b""
        with anyio.fail_after(5):
            while got != b"".join(reply.chunks or ()):
                got += await anext(pieces)
        assert response.headers["content-type"] == "text/event-stream"


async def test_turn_is_committed_before_the_terminal_event_is_passed_on() -> None:
    reply = stream("four", ending="hang")
    async with (
        staged(reply) as stage,
        stage.http.stream(
            "POST",
            "/chat/completions",
            content=json.dumps(BODY | {"stream": True}),
            headers={"Content-Type": "application/json"},
        ) as response,
    ):
        got = b""
        async for piece in response.aiter_raw():
            got += piece
            if b"[DONE]" in got:
                break
        assert stage.session.trace.last_reply == "four"
    assert len(stage.calls) == 1


def chunk(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


ERROR_EVENT = b'data: {"error":{"message":"overloaded"}}\n\n'
TOOL_CALL = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a'}}]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (stream("a", "b", "c", ending="reset", **CUT), "closed the connection"),
        (stream("a", "b", "c", ending="close-early", **CUT), "closed the connection"),
        (stream("a", "b", "c", **CUT), "ended without its terminal event"),
        (Reply(200, chunks=[chunk(content="abc"), chunk(tool_calls=TOOL_CALL)]), "ended without its terminal event"),
        (Reply(200, chunks=[chunk(content="abc"), ERROR_EVENT]), "the provider sent an error: overloaded"),
        (Reply(200, chunks=[chunk(content="abc"), ERROR_EVENT, b"data: [DONE]\n\n"]), "sent an error: overloaded"),
        (Reply(200, chunks=[chunk(content="abc"), b"data: {oops\n\n"]), "an event is malformed: "),
    ],
)
async def test_broken_stream_is_a_failed_call_and_looks_broken(reply: Reply, words: str) -> None:
    async with staged(reply) as stage:
        body, is_whole = await ask_stream(stage)
        assert (body, is_whole) == (b"".join(reply.chunks or ()), False)
        error = stage.session.error
        assert stage.call.error is not None
        assert stage.call.error.message.startswith("provider stream incomplete: ")
        assert words in stage.call.error.message
        assert stage.call.partial == "abc"
        assert stage.session.trace.nodes == []
    assert str(error) == stage.call.error.message


async def test_asking_again_after_a_broken_stream_gives_exactly_one_turn() -> None:
    async with staged(stream("ab", **CUT), stream("abc")) as stage:
        assert [(await ask_stream(stage))[1] for _ in range(2)] == [False, True]
    trace = stage.session.trace
    assert [node.message.text for node in trace.nodes] == ["Hi", "abc"]
    assert trace.num_turns == 1
    assert stage.session.error is None


@pytest.mark.parametrize("ending", ["normal", "reset"])
async def test_finish_reason_without_done_is_complete(ending: Any) -> None:
    async with staged(stream("abc", finish_reason="length", is_done=False, ending=ending)) as stage:
        _, is_whole = await ask_stream(stage)
    assert is_whole
    assert stage.call.finish_reasons == ("length",)
    assert stage.session.trace.last_reply == "abc"


async def test_stream_without_finish_reasons_for_all_choices_is_incomplete() -> None:
    async with staged(stream("abc", is_done=False)) as stage:
        _, is_whole = await ask_stream(stage, n=2)
    assert not is_whole
    assert stage.call.error is not None


async def test_error_status_in_place_of_a_stream_passes_whole() -> None:
    reply = Reply(503, body=b'{"error":{"message":"busy"}}')
    async with staged(reply) as stage:
        response = await stage.post(stream=True)
    assert (response.status_code, response.content) == (503, reply.body)


async def test_silence_within_a_stream_fails_it_whatever_comments_were_sent() -> None:
    reply = stream("a", ending="hang", **CUT)
    async with staged(reply, idle_timeout=0.3, keep_alive=0.05) as stage:
        body, is_whole = await ask_stream(stage)
    assert body.startswith(b"".join(reply.chunks or ()) + b": keep-alive\n\n")
    assert not is_whole
    assert stage.call.error is not None
    assert "idle timeout" in stage.call.error.message


async def test_comments_stand_only_between_events() -> None:
    event = chunk(content="abc") + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    middle = len(event) // 2
    chunks = [event[:10], event[10:middle], event[middle:], b"data: [DO", b"NE]\r\n", b"\r\n"]
    async with staged(Reply(200, chunks=chunks, chunk_delay=0.12), keep_alive=0.05) as stage:
        body, is_whole = await ask_stream(stage)
    assert is_whole
    assert body.count(b": keep-alive\n\n") >= 2
    assert body.replace(b": keep-alive\n\n", b"") == b"".join(chunks)
    assert event in body
    assert b"data: [DONE]\r\n\r\n" in body
    assert stage.session.trace.last_reply == "abc"


# Programs that go away


async def leave_after(stage: Stage, pieces: int) -> None:
    body = json.dumps(BODY | {"stream": True})
    headers = {"Content-Type": "application/json"}
    async with stage.http.stream("POST", "/chat/completions", content=body, headers=headers) as response:
        async for _ in response.aiter_raw():
            pieces -= 1
            if not pieces:
                break


async def test_program_that_leaves_a_stream_ends_it_at_the_provider() -> None:
    async with staged(stream(*"abcdefgh", chunk_delay=0.05, **CUT)) as stage:
        with anyio.fail_after(5):
            await leave_after(stage, 3)
            await stage.provider.requests[0].gone.wait()
            await stage.recorded()
    assert stage.call.error is not None
    assert (stage.call.error.kind, stage.call.error.message) == ("interception", "program closed the connection")
    assert stage.call.partial == "ab"
    assert stage.session.trace.num_turns == 0
    assert stage.session.error is None


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
async def test_program_that_leaves_before_the_first_byte_ends_the_call_at_the_provider(fields: dict[str, Any]) -> None:
    async with staged(completion(delay=30)) as stage:
        with anyio.fail_after(5):
            with pytest.raises(httpx.ReadTimeout):
                await stage.http.post("/chat/completions", json=BODY | fields, timeout=0.2)
            await stage.provider.requests[0].gone.wait()
            await stage.recorded()
    assert stage.call.error is not None
    assert stage.session.trace.num_turns == 0


async def test_program_that_leaves_after_the_finish_reason_has_its_turn() -> None:
    async with staged(stream("ab", is_done=False, ending="hang")) as stage:
        with anyio.fail_after(5):
            body = json.dumps(BODY | {"stream": True})
            headers = {"Content-Type": "application/json"}
            async with stage.http.stream("POST", "/chat/completions", content=body, headers=headers) as response:
                async for piece in response.aiter_raw():
                    if b'"stop"' in piece:
                        break
            await stage.recorded()
    assert stage.session.trace.last_reply == "ab"


async def test_a_place_under_the_limit_is_free_again_when_the_program_leaves() -> None:
    session = new_session(limits=Limits(max_turns=1))
    async with staged(completion(delay=30), session=session) as stage:
        with pytest.raises(httpx.ReadTimeout):
            await stage.http.post("/chat/completions", json=BODY, timeout=0.2)
        await stage.recorded()
        assert (await stage.post()).status_code == 200
