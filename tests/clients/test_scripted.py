import json
from pathlib import Path
from typing import Any

import pytest

from vfx.clients.base import Client, ProviderRequest, ProviderResponse, ScriptedSettings, create_client
from vfx.dialects.base import Dialect
from vfx.dialects.chat import read_completion
from vfx.dialects.chat_stream import ChatAssembler
from vfx.dialects.routes import DIALECTS

pytestmark = pytest.mark.anyio


async def ask(client: Client, *texts: str, **fields: Any) -> ProviderResponse:
    """Call with a conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
    request = ProviderRequest("chat/completions", body, is_stream=bool(fields.get("stream")))
    async with client.serving(), client.send(request) as response:
        return response


def text_of(response: ProviderResponse) -> str:
    return read_completion(json.loads(response.body)).messages[0].text


async def streamed(response: ProviderResponse) -> ChatAssembler:
    assembler = ChatAssembler()
    assert response.chunks
    async for chunk in response.chunks:
        assembler.feed(chunk)
    return assembler


async def test_each_turn_of_a_conversation_gets_its_reply() -> None:
    client = create_client(ScriptedSettings(replies=("one", "two")))
    assert text_of(await ask(client, "a")) == "one"
    assert text_of(await ask(client, "a", "one", "b")) == "two"
    assert text_of(await ask(client, "a", "one", "b", "two", "c")) == "one"


async def test_without_replies_the_last_user_message_comes_back() -> None:
    assert text_of(await ask(create_client(ScriptedSettings()), "a", "b", "say this")) == "say this"


async def test_replies_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "replies.txt"
    file.write_text("erste Zeile für dich\nsecond\n", "utf-8")
    assert text_of(await ask(create_client(ScriptedSettings(file=file)), "a")) == "erste Zeile für dich"


async def test_usage_is_counted_in_words() -> None:
    response = await ask(create_client(ScriptedSettings(replies=("two words",))), "just three words")
    completion = read_completion(json.loads(response.body))
    assert (completion.usage.input_tokens, completion.usage.output_tokens, completion.model) == (3, 2, "m")


async def test_a_stream_holds_the_same_answer() -> None:
    client = create_client(ScriptedSettings(replies=("two  words\n",)))
    assembler = await streamed(await ask(client, "a", stream=True, stream_options={"include_usage": True}))
    completion = assembler.completion()
    assert assembler.is_done
    assert assembler.is_complete
    assert (completion.messages[0].text, completion.finish_reasons) == ("two  words\n", ("stop",))
    assert completion.usage.output_tokens == 2


async def test_a_stream_has_usage_only_when_asked() -> None:
    assembler = await streamed(await ask(create_client(ScriptedSettings()), "a", stream=True))
    assert assembler.completion().usage.output_tokens is None


async def test_models_are_listed() -> None:
    client = create_client(ScriptedSettings())
    async with client.serving(), client.send(ProviderRequest("models", b"", method="GET")) as response:
        assert [model["id"] for model in json.loads(response.body)["data"]] == [client.default_model]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("embeddings", b"{}", 404), ("chat/completions", b"no json", 400), ("chat/completions", b"[]", 400)],
)
async def test_what_it_cannot_answer_is_refused(path: str, body: bytes, status: int) -> None:
    client = create_client(ScriptedSettings())
    async with client.serving(), client.send(ProviderRequest(path, body)) as response:
        assert (response.status, response.chunks) == (status, None)
        assert response.error
        assert json.loads(response.body)["error"]["message"]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.path)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_every_dialect_is_answered_in_its_own_form(dialect: Dialect, is_stream: bool) -> None:
    client = create_client(ScriptedSettings(replies=("one", "two  words\n")))
    messages = [{"role": role, "content": "just text"} for role in ("user", "assistant", "user")]
    body = {"model": "m", "messages": messages, "input": messages, "stream_options": {"include_usage": True}}
    request = ProviderRequest(f"{dialect.path}?beta=true", json.dumps(body).encode(), is_stream=is_stream)
    stream = dialect.assemble(body)
    async with client.send(request) as response:
        if response.chunks is None:
            completion = dialect.read_completion(json.loads(response.body))
        else:
            async for chunk in response.chunks:
                stream.feed(chunk)
            completion = stream.completion()
            assert stream.is_done
            assert stream.is_complete
    assert (completion.messages[0].text, completion.model) == ("two  words\n", "m")
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (6, 2)


async def test_tokens_of_a_prompt_are_counted_in_words() -> None:
    client = create_client(ScriptedSettings())
    body = json.dumps({"messages": [{"role": "user", "content": "a b c"}]}).encode()
    async with client.send(ProviderRequest("messages/count_tokens", body)) as response:
        assert json.loads(response.body) == {"input_tokens": 3}


async def test_refusals_have_the_form_of_the_dialect() -> None:
    client = create_client(ScriptedSettings())
    async with client.send(ProviderRequest("messages", b"{}")) as response:
        assert (response.status, json.loads(response.body)["type"]) == (400, "error")


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    (mistake,) = create_client(ScriptedSettings(file=tmp_path / "none.txt")).mistakes()
    assert "none.txt" in str(mistake)


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.touch()
    (mistake,) = create_client(ScriptedSettings(file=file)).mistakes()
    assert "empty" in str(mistake)


def test_replies_from_two_places_are_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "replies.txt"
    file.write_text("one")
    assert create_client(ScriptedSettings(file=file, replies=("two",))).mistakes()


@pytest.mark.parametrize("path", [dialect.path for dialect in DIALECTS.values()])
async def test_a_reply_in_json_calls_a_tool_in_each_dialect(path: str) -> None:
    client = create_client(ScriptedSettings(replies=('{"tool": "search", "arguments": {"text": "x"}}',)))
    dialect = next(dialect for dialect in DIALECTS.values() if dialect.path == path)
    content = {"input" if path == "responses" else "messages": [{"role": "user", "content": "go"}]}
    request = ProviderRequest(path, json.dumps({"model": "m", "max_tokens": 9, **content}).encode())
    async with client.serving(), client.send(request) as response:
        [call] = dialect.read_completion(json.loads(response.body)).messages[0].tool_calls
    assert (call.name, json.loads(call.arguments)) == ("search", {"text": "x"})


@pytest.mark.parametrize("reply", ["{", "{}", '{"tool": "x"}', '{"tool": 1, "arguments": {}}', '["tool"]'])
async def test_any_other_reply_is_text(reply: str) -> None:
    assert text_of(await ask(create_client(ScriptedSettings(replies=(reply,))), "a")) == reply
