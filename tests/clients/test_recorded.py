"""The client that answers from a record, as the interception sees it."""

import json
from typing import Any

import pytest

from tests.clients.test_recording import AT, USER, say, trace, turn
from vfx.clients.base import ProviderRequest, ProviderResponse
from vfx.clients.recorded import RecordedClient
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS
from vfx.errors import DriftError, ProviderError
from vfx.messages import Completion, Message
from vfx.trace.record import Agent, Call, ErrorRecord, Span, TaskRef, Trace

pytestmark = pytest.mark.anyio


def attempt(id: str = "new", rollout: int = 0) -> Trace:
    return Trace(id=id, task=TaskRef("T", "k", 0, {}), rollout=rollout, agent=Agent("m", {}, {}))


def client(on: Trace) -> RecordedClient:
    return RecordedClient({("k", 0, 0): on}.get, "a-model")


async def ask(
    of: RecordedClient, by: Trace, *prompt: Message, dialect: Dialect = CHAT, is_stream: bool = False, **body: Any
) -> ProviderResponse:
    raw = json.dumps({"model": "m", **body}).encode()
    request = ProviderRequest(f"{dialect.path}?beta=true", raw, is_stream=is_stream, asker=by, prompt=prompt)
    async with of.serving(), of.send(request) as response:
        if response.chunks is not None:
            response.body = b"".join([chunk async for chunk in response.chunks])
        return response


def read(response: ProviderResponse, dialect: Dialect = CHAT, *, is_stream: bool = False) -> Completion:
    if not is_stream:
        return dialect.read_completion(json.loads(response.body))
    stream = dialect.assemble({})
    stream.feed(response.body)
    assert stream.is_complete
    return stream.completion()


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.path)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_recorded_answer_is_given_in_the_dialect_that_is_asked(dialect: Dialect, *, is_stream: bool) -> None:
    on = trace()
    turn(on, [USER], say("two words"))
    response = await ask(client(on), attempt(), USER, dialect=dialect, is_stream=is_stream)
    answer = read(response, dialect, is_stream=is_stream)
    assert (answer.messages[0].text, answer.usage.input_tokens, answer.usage.output_tokens) == ("two words", 1, 2)
    assert answer.model == "m"


async def test_another_attempt_begins_anew() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    of = client(on)
    for id in ("first", "second"):
        assert read(await ask(of, attempt(id), USER)).messages[0].text == "one"
    recording = of.release(("k", 0, 0))
    assert recording is not None
    assert recording.num_unasked == 0
    assert of.release(("k", 0, 0)) is None


async def test_what_is_on_no_record_is_refused_for_good() -> None:
    on = trace()
    turn(on, [USER], say("one"))
    response = await ask(client(on), attempt(), Message("user", "other"), dialect=ANTHROPIC)
    assert (response.status, type(response.error)) == (400, DriftError)
    assert "recorded: hello" in json.loads(response.body)["error"]["message"]


async def test_a_rollout_that_was_not_recorded_is_refused() -> None:
    response = await ask(client(trace()), attempt(rollout=7), USER)
    assert isinstance(response.error, DriftError)


@pytest.mark.parametrize("status", [429, None])
async def test_a_failed_call_is_answered_as_it_was(status: int | None) -> None:
    on = trace()
    on.calls.append(Call("m", {}, "e", Span(AT, AT), error=ErrorRecord("provider", "no room", status)))
    if status is None:
        with pytest.raises(ProviderError, match="no room"):
            await ask(client(on), attempt(), USER)
    else:
        response = await ask(client(on), attempt(), USER)
        assert (response.status, json.loads(response.body)["error"]["message"]) == (429, "no room")


@pytest.mark.parametrize(("options", "has_event"), [({}, False), ({"stream_options": {"include_usage": True}}, True)])
async def test_an_event_for_the_usage_comes_only_where_it_is_asked_for(
    options: dict[str, Any], *, has_event: bool
) -> None:
    on = trace()
    turn(on, [USER], say("one"))
    response = await ask(client(on), attempt(), USER, is_stream=True, **options)
    events = [json.loads(line[6:]) for line in response.body.decode().splitlines() if line.startswith("data: {")]
    assert any(not event["choices"] for event in events) is has_event
    assert read(response, is_stream=True).usage.output_tokens == 2


async def test_models_are_listed_and_tokens_counted() -> None:
    of = client(trace())
    async with of.send(ProviderRequest("models", b"", method="GET")) as response:
        assert [model["id"] for model in json.loads(response.body)["data"]] == ["a-model"]
    body = json.dumps({"messages": [{"role": "user", "content": "a b c"}]}).encode()
    async with of.send(ProviderRequest("messages/count_tokens", body)) as response:
        assert json.loads(response.body) == {"input_tokens": 3}
    async with of.send(ProviderRequest("embeddings", b"{}")) as response:
        assert response.status == 404
