import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from tests.support.provider import Provider, Reply, completion, scripted_provider
from tests.support.traces import make_trace
from vfx.clients.asking import Asker, relocated, relocated_mistake
from vfx.clients.base import HttpSettings, create_client
from vfx.errors import Mistake, ProviderError, ScoringError
from vfx.messages import Message, Sampling
from vfx.trace.record import Trace

pytestmark = pytest.mark.anyio

QUESTION = (Message("system", "Be brief."), Message("user", "Is it right?"))


async def ask(
    provider: Provider,
    trace: Trace,
    sampling: Sampling | None = None,
    *,
    fields: Mapping[str, Any] | None = None,
    check: Callable[[Message], None] | None = None,
) -> Message:
    settings = HttpSettings(base_url=provider.base_url, api_key_var=None, max_retries=1, max_retry_wait=0.01)
    client = create_client(settings)
    async with client.serving():
        asker = Asker(client, "small", sampling or Sampling(), option="taskset.task.judges[0].client")
        return await asker.ask(trace, "judge", "strict", QUESTION, fields=fields, check=check)


async def test_a_reply_comes_back_and_is_on_the_trace_with_its_cost() -> None:
    trace = make_trace()
    async with scripted_provider(completion("yes")) as provider:
        reply = await ask(provider, trace, Sampling(temperature=0.0, max_tokens=9))
        body = provider.requests[0].json()
    assert reply.text == "yes"
    assert body == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it right?"}],
        "temperature": 0.0,
        "max_tokens": 9,
    }
    (call,) = trace.side_calls
    assert (call.purpose, call.name, call.model, call.error) == ("judge", "strict", "small", None)
    assert call.messages == QUESTION
    assert call.reply == reply
    assert call.usage.output_tokens is not None
    assert call.span.end is not None
    assert call.endpoint == provider.base_url


async def test_it_is_no_call_of_the_rollout() -> None:
    trace = make_trace()
    before = (trace.num_turns, trace.usage, len(trace.nodes))
    async with scripted_provider(completion("yes")) as provider:
        await ask(provider, trace)
    assert (trace.num_turns, trace.usage, len(trace.nodes)) == before


async def test_a_refusal_is_on_the_trace_and_names_the_options_of_this_client() -> None:
    trace = make_trace()
    async with scripted_provider(Reply(status=401, body=b'{"error": {"message": "no"}}')) as provider:
        with pytest.raises(ProviderError, match=r"taskset\.task\.judges\[0\]\.client\.api_key_var is none") as caught:
            await ask(provider, trace)
    assert (caught.value.status, caught.value.fatal is not None) == (401, True)
    (call,) = trace.side_calls
    assert call.error is not None
    assert (call.error.kind, call.error.status, call.reply) == ("provider", 401, None)


async def test_a_failed_request_is_sent_again_and_counted() -> None:
    trace = make_trace()
    async with scripted_provider(Reply(status=500), completion("yes")) as provider:
        await ask(provider, trace)
    assert trace.side_calls[0].attempts == 2


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{"message": 3}]}', b"[" * 5000])
async def test_what_is_no_completion_is_the_providers_error(body: bytes) -> None:
    trace = make_trace()
    async with scripted_provider(Reply(body=body)) as provider:
        with pytest.raises(ProviderError, match="no chat completion came back"):
            await ask(provider, trace)
    assert trace.side_calls[0].error is not None


async def test_a_reply_that_can_t_be_used_stays_with_its_cost_and_the_reason() -> None:
    def refuse(reply: Message) -> None:
        raise ScoringError(f"{reply.text!r} is no number")

    trace = make_trace()
    async with scripted_provider(completion("hm")) as provider:
        with pytest.raises(ScoringError, match="'hm' is no number"):
            await ask(provider, trace, check=refuse)
    (call,) = trace.side_calls
    assert call.reply is not None
    assert call.error is not None
    assert (call.reply.text, call.error.kind, call.usage.output_tokens is None) == ("hm", "scoring", False)


async def test_a_cancelled_call_is_on_the_trace() -> None:
    trace = make_trace()
    async with scripted_provider(Reply(delay=30.0)) as provider, anyio.create_task_group() as group:
        group.start_soon(ask, provider, trace)
        await provider.arrived()
        group.cancel_scope.cancel()
    (call,) = trace.side_calls
    assert call.error is not None
    assert call.reply is None


async def test_further_keys_go_into_the_body() -> None:
    async with scripted_provider(completion("{}")) as provider:
        await ask(provider, make_trace(), fields={"response_format": {"type": "json_object"}})
        assert provider.requests[0].json()["response_format"] == {"type": "json_object"}


def test_side_calls_have_a_record() -> None:
    record: Sequence[object] = make_trace().to_record()["side_calls"]
    assert json.dumps(record) == "[]"


def test_options_are_named_where_they_were_set() -> None:
    text = "lower -c, see --client.max-retry-wait 60 and --client.headers.X-Team"
    expected = "lower -c, see judges[1].client.max_retry_wait 60 and judges[1].client.headers.X-Team"
    assert relocated(text, "judges[1].client") == expected


def test_a_mistake_without_an_option_gets_the_place_of_the_client() -> None:
    mistake = relocated_mistake(Mistake("not set", "KEY", "name another with --client.api-key-var"), "j[0].client")
    assert mistake == Mistake("not set", "j[0].client (KEY)", "name another with j[0].client.api_key_var")
