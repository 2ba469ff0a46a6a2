import json
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.conftest import KEY
from tests.clients.test_local import needs_smollm2, needs_xllamacpp
from tests.support.native_replies import message, message_stream, response_stream
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider, stream
from vfx.clients.base import (
    Client,
    HttpSettings,
    LocalSettings,
    ProviderRequest,
    ScriptedSettings,
    create_client,
)
from vfx.errors import ProviderError, RunError

pytestmark = pytest.mark.anyio

TAPES = Path(__file__).parent
NOWHERE = "http://127.0.0.1:9/v1"
OLD, NEW = "/var/vfx-2d8170144f379be9/2c3af759e5a16ee5", "/srv/vfx-bf9156af613f6445/5cd37aede75ddb37"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def chat(*texts: str, **fields: Any) -> ProviderRequest:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    body = {"model": "m", "messages": messages, **fields}
    return ProviderRequest("chat/completions", json.dumps(body).encode(), is_stream=bool(fields.get("stream")))


@dataclass
class Got:
    """An answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes
    chunks: list[bytes] | None
    error: ProviderError | None
    endpoint: str | None
    taped: str | None
    notes: Sequence[str] = ()

    @property
    def text(self) -> str:
        return json.loads(self.body)["choices"][0]["message"]["content"]

    @property
    def what_was_said(self) -> tuple[Any, ...]:
        return self.status, self.body, self.chunks


async def ask(client: Client, request: ProviderRequest) -> Got:
    async with client.send(request) as response:
        chunks = None if response.chunks is None else [chunk async for chunk in response.chunks]
        body = response.body if chunks is None else b"".join(chunks)
        headers = {name.lower(): value for name, value in response.headers}
        return Got(
            response.status, headers, body, chunks, response.error, response.endpoint, response.taped, response.notes
        )


@asynccontextmanager
async def opened(
    tape: Path, provider: Provider | None = None, mode: str = "auto", **more: Any
) -> AsyncGenerator[Client]:
    url = NOWHERE if provider is None else provider.base_url
    retries = {"max_retries": 0}
    client = create_client(HttpSettings(base_url=url, cassette=tape, cassette_mode=mode, **{**retries, **more}))  # pyright: ignore[reportArgumentType]
    assert client.mistakes() == []
    async with client.serving():
        yield client


async def record(tape: Path, *requests: ProviderRequest, replies: Sequence[Reply] = (), **more: Any) -> list[Got]:
    async with scripted_provider(*replies) as provider, opened(tape, provider, **more) as client:
        return [await ask(client, request) for request in requests]


async def replay(tape: Path, *requests: ProviderRequest, **more: Any) -> list[Got]:
    async with opened(tape, mode="replay", **more) as client:
        return [await ask(client, request) for request in requests]


def lines(tape: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tape.read_bytes().split(b"\n")[:-1]]


NATIVE = {
    "chat": (chat("a"), completion("x")),
    "chat stream": (chat("a", stream=True), stream("x", "y", "z")),
    "responses stream": (
        ProviderRequest("responses", b'{"input":"a","stream":true}', is_stream=True),
        response_stream("xyz"),
    ),
    "messages": (ProviderRequest("messages?beta=true", b'{"messages":[]}'), message("x")),
    "messages stream": (
        ProviderRequest("messages", b'{"messages":[],"stream":true}', is_stream=True),
        message_stream("xyz"),
    ),
    "count": (ProviderRequest("messages/count_tokens", b"{}"), Reply(200, {}, b'{"input_tokens":3}')),
    "listing": (ProviderRequest("models", b"", method="GET"), Reply(200, {}, b'{"data":[]}')),
}


@pytest.mark.parametrize("name", NATIVE)
async def test_an_answer_comes_again_as_it_came(tape: Path, name: str) -> None:
    request, reply = NATIVE[name]
    [recorded] = await record(tape, request, replies=[reply])
    [replayed] = await replay(tape, request)
    assert replayed.what_was_said == recorded.what_was_said
    assert replayed.headers.get("content-type") == recorded.headers.get("content-type")
    assert replayed.taped == recorded.taped
    assert "beta" not in tape.read_text()


async def test_pieces_that_cut_characters_come_again_as_they_came(tape: Path) -> None:
    whole = b"".join(bytes(chunk) for chunk in stream("gr\u00fc\u00dfe \U0001f30d").chunks or ())
    request = chat("a", stream=True)
    cut = Reply(200, {"Content-Type": "text/event-stream"}, chunks=[whole[n : n + 7] for n in range(0, len(whole), 7)])
    [recorded] = await record(tape, request, replies=[cut])
    [replayed] = await replay(tape, request)
    assert replayed.chunks == recorded.chunks


async def test_the_order_of_asking_does_not_matter(tape: Path) -> None:
    requests = [chat(f"What is {n} + {n}?") for n in range(20)]
    recorded = await record(tape, *requests, replies=[completion(f"{n + n}") for n in range(20)])
    order = random.Random(1).sample(range(20), 20)
    replayed = await replay(tape, *(requests[n] for n in order))
    assert [got.text for got in replayed] == [recorded[n].text for n in order]


async def test_equal_requests_get_their_answers_in_order_and_then_none(tape: Path) -> None:
    replies = [completion("one"), completion("two")]
    await record(tape, chat("a"), chat("a"), replies=replies)
    one, two, third = await replay(tape, chat("a"), chat("a"), chat("a"))
    assert (one.text, two.text) == ("one", "two")
    assert third.status == 400
    assert "was recorded 2 times, and is asked for a 3rd time" in str(third.error)
    async with scripted_provider(completion("three")) as provider, opened(tape, provider) as client:
        given = [(await ask(client, chat("a"))).text for _ in range(3)]
        assert client.tape
        assert (client.tape.replayed, client.tape.recorded) == (2, 1)
    assert given == ["one", "two", "three"]
    assert [got.text for got in await replay(tape, chat("a"), chat("a"), chat("a"))] == given


async def test_what_was_recorded_in_this_launch_is_not_replayed_in_it(tape: Path) -> None:
    given = await record(tape, chat("a"), chat("a"), replies=[completion("one"), completion("two")])
    assert [got.text for got in given] == ["one", "two"]


async def test_rollouts_at_one_time_get_each_answer_once(tape: Path) -> None:
    given: list[str] = []

    async def one(client: Client) -> None:
        given.append((await ask(client, chat("a"))).text)

    replies = [completion(f"{n}") for n in range(40)]
    async with (
        scripted_provider(*replies) as provider,
        opened(tape, provider) as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(40):
            group.start_soon(one, client)
    assert sorted(given, key=int) == [f"{n}" for n in range(40)]
    given.clear()
    async with opened(tape, mode="replay") as client, anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(one, client)
    assert sorted(given, key=int) == [f"{n}" for n in range(40)]


async def test_the_same_bytes_go_before_what_differs_in_its_folder(tape: Path) -> None:
    asked = [chat(f"in {folder}") for folder in (OLD, NEW)]
    await record(tape, *asked, replies=[completion("old"), completion("new")])
    new, old = await replay(tape, asked[1], asked[0])
    assert (new.text, old.text) == ("new", "old")


async def test_an_answer_about_a_folder_is_told_about_the_other_rollouts(tape: Path) -> None:
    said = f"cat {OLD}/add.py"
    await record(
        tape, chat(f"in {OLD}"), chat(f"in {OLD}", said, "go on"), replies=[completion(said), completion("ok")]
    )
    first, second = await replay(tape, chat(f"in {NEW}"), chat(f"in {NEW}", f"cat {NEW}/add.py", "go on"))
    assert first.text == f"cat {NEW}/add.py"
    assert "in the place of the recorded ones" in first.notes[0]
    assert second.text == "ok"
    assert second.notes == ()


async def test_a_new_question_is_recorded_beside_the_known_ones(tape: Path) -> None:
    await record(tape, chat("a"), replies=[completion("one")])
    async with scripted_provider(completion("two")) as provider, opened(tape, provider) as client:
        given = [(await ask(client, chat(text))).text for text in ("a", "b")]
        assert len(provider.requests) == 1
    assert given == ["one", "two"]
    assert [line["endpoint"] for line in lines(tape) if "endpoint" in line][1] == provider.base_url
    assert [got.endpoint for got in await replay(tape, chat("b"))] == [provider.base_url]


async def test_a_launch_that_records_nothing_leaves_the_tape_as_it_is(tape: Path) -> None:
    async with opened(tape):
        pass
    assert not tape.exists()
    await record(tape, chat("a"))
    before = tape.read_bytes()
    async with opened(tape) as client:
        await ask(client, chat("a"))
    assert tape.read_bytes() == before


async def test_recording_asks_whatever_is_known_and_refuses_a_tape_that_is_not_empty(tape: Path) -> None:
    await record(tape, chat("a"), chat("a"), replies=[completion("one"), completion("two")], mode="record")
    settings = HttpSettings(base_url=NOWHERE, cassette=tape, cassette_mode="record")
    [mistake] = create_client(settings).mistakes()
    assert "it holds 2 exchanges already" in str(mistake)
    assert "remove the file" in str(mistake)
    resumed = create_client(settings, is_resumed=True)
    assert resumed.mistakes() == []


async def test_exchanges_that_a_run_has_had_are_not_replayed(tape: Path) -> None:
    recorded = await record(tape, *[chat("a")] * 3, replies=[completion(f"{n}") for n in range(3)])
    client = create_client(HttpSettings(base_url=NOWHERE, cassette=tape, cassette_mode="replay"), is_resumed=True)
    client.skipped.update([recorded[0].taped or "", "ffffffff#2"])
    async with client.serving():
        given = [await ask(client, chat("a")) for _ in range(3)]
    assert [got.text for got in given[:2]] == ["1", "2"]
    assert given[2].status == 400


async def test_an_attempt_that_is_tried_again_is_replayed_again(tape: Path) -> None:
    await record(tape, chat("a"), replies=[completion("one")])
    async with opened(tape, mode="replay") as client:
        first = await ask(client, chat("a"))
        client.discarded.add(first.taped or "")
        again, third = [await ask(client, chat("a")) for _ in range(2)]
    assert (again.text, third.status) == ("one", 400)


async def test_what_an_attempt_recorded_that_is_tried_again_is_gone_with_the_launch(tape: Path) -> None:
    async with scripted_provider(completion("one"), completion("two")) as provider, opened(tape, provider) as client:
        first = await ask(client, chat("a"))
        client.discarded.add(first.taped or "")
        await ask(client, chat("a"))
    two, none = await replay(tape, chat("a"), chat("a"))
    assert (two.text, none.status) == ("two", 400)


# What is not kept


@pytest.mark.parametrize("status", [401, 403, 408, 409, 425, 429, 500, 503, 529])
async def test_a_refusal_that_passes_is_not_kept(tape: Path, status: int) -> None:
    [got] = await record(tape, chat("a"), replies=[Reply(status, {}, b"{}")], max_retry_wait=0)
    assert got.status == status
    assert not tape.exists()


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refusal_of_what_was_asked_comes_again(tape: Path, status: int) -> None:
    body = b'{"error":{"message":"maximum context length is 10 tokens","code":"context_length_exceeded"}}'
    [recorded] = await record(tape, chat("a"), replies=[Reply(status, {}, body)])
    [replayed] = await replay(tape, chat("a"))
    assert replayed.what_was_said == recorded.what_was_said
    assert recorded.error
    assert replayed.error
    assert str(replayed.error) == str(recorded.error)
    facts = [(e.status, e.fatal, e.truncated, e.is_final) for e in (recorded.error, replayed.error)]
    assert facts[0] == facts[1]


async def test_an_answer_that_came_after_retries_is_kept_once(tape: Path) -> None:
    replies = [Reply(500, {}, b"{}"), completion("x")]
    await record(tape, chat("a"), replies=replies, max_retries=1, max_retry_wait=0)
    assert len(lines(tape)) == 2


async def test_half_a_stream_is_not_kept(tape: Path) -> None:
    pieces = [bytes(chunk) for chunk in stream("x", "y").chunks or ()]
    replies = [Reply(200, {}, chunks=pieces[:2], ending="reset"), Reply(200, {}, chunks=pieces[:2])]
    async with scripted_provider(*replies) as provider, opened(tape, provider) as client:
        with pytest.raises(ProviderError, match="stream incomplete"):
            await ask(client, chat("a", stream=True))
        await ask(client, chat("a", stream=True))
    assert not tape.exists()


async def test_a_stream_that_its_program_leaves_is_kept_if_it_was_whole_by_then(tape: Path) -> None:
    pieces = [bytes(chunk) for chunk in stream("x", "y").chunks or ()]

    async def leave_after(client: Client, count: int) -> None:
        with anyio.CancelScope() as scope:
            async with client.send(chat("a", stream=True)) as response:
                assert response.chunks
                async for _ in response.chunks:
                    count -= 1
                    if not count:
                        scope.cancel()
                        await anyio.lowlevel.checkpoint()

    reply = Reply(200, {}, chunks=pieces, chunk_delay=0.05, ending="hang")
    async with scripted_provider(default=reply) as provider, opened(tape, provider) as client:
        await leave_after(client, 2)
        assert tape.read_bytes() == b""
        await leave_after(client, len(pieces))
    assert len(lines(tape)) == 2


async def test_an_answer_that_is_no_answer_is_not_kept(tape: Path) -> None:
    await record(tape, chat("a"), replies=[Reply(200, {}, b'{"error":{"message":"upstream is busy"}}')])
    assert not tape.exists()


async def test_neither_key_nor_headers_nor_query_reach_the_file(tape: Path) -> None:
    def echo(request: Request) -> Reply:
        return Reply(200, {"X-Api-Key": KEY, "Content-Type": "application/json"}, completion(KEY).body)

    request = chat(f"my key is {KEY}")
    asked = ProviderRequest("chat/completions?token=t0p53cret", request.body, [("X-Own", "private")])
    async with scripted_provider(default=echo) as provider, opened(tape, provider) as client:
        await ask(client, asked)
    content = tape.read_text()
    assert "my key is ***" in content
    assert not any(word in content for word in (KEY, "t0p53cret", "private", "X-Own", "Authorization"))


# Drift


async def test_a_request_that_is_not_on_the_tape_is_told_with_the_nearest(tape: Path) -> None:
    long = "you are a calculator " * 30
    await record(tape, chat(long, "yes", "What is 3 + 4?"), chat("something else"))
    [got] = await replay(tape, chat(long, "yes", "What is 3 + 5?"))
    assert got.status == 400
    assert str(got.error).split("\n") == [
        f"not on the tape {tape}: POST chat/completions is nearest to exchange 1, "
        "but differs in message 3 (user), content",
        "  recorded: What is 3 + 4?",
        "  asked:    What is 3 + 5?",
    ]
    assert got.error
    assert (got.error.kind, got.error.is_final, got.error.fatal, got.error.status) == (
        "drift",
        True,
        f"not on the tape {tape}",
        None,
    )
    assert "not on the tape" in json.loads(got.body)["error"]["message"]


async def test_a_path_that_was_never_asked_is_told(tape: Path) -> None:
    await record(tape, chat("a"))
    [got] = await replay(tape, ProviderRequest("messages", b'{"messages":[]}'))
    assert "it holds no POST messages, only POST chat/completions" in str(got.error)
    assert json.loads(got.body)["type"] == "error"


async def test_what_is_ignored_in_a_recording_need_not_be_in_a_replay(tape: Path) -> None:
    await record(tape, chat("a", seed=1), cassette_ignore=('"seed":1',))
    [got, other] = await replay(tape, chat("a", seed=1), chat("a"))
    assert (got.status, other.status) == (200, 400)
    [got] = await replay(tape, chat("a", seed=2), cassette_ignore=('"seed":[0-9]',))
    assert got.status == 200


async def test_keys_of_other_rules_are_made_anew(tape: Path) -> None:
    await record(tape, chat(f"in {OLD}", seed=1))
    stale = [line | {"keys": ["0", "0", "0"]} if "keys" in line else line | {"masks": 0} for line in lines(tape)]
    tape.write_text("".join(json.dumps(line) + "\n" for line in stale))
    [got] = await replay(tape, chat(f"in {NEW}", seed=1))
    assert got.status == 200


# What it is made of


async def test_a_replay_tells_where_the_answers_came_from(tape: Path) -> None:
    async with scripted_provider() as provider, opened(tape, provider) as client:
        await ask(client, chat("a"))
        assert client.endpoint == provider.base_url
    async with opened(tape, mode="replay") as client:
        assert client.endpoint == provider.base_url
        assert (await ask(client, chat("a"))).endpoint == provider.base_url


async def test_a_replay_needs_nothing_of_its_client(
    tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(tape, chat("a"))
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("VFX_DATA_DIR", str(tmp_path / "nothing"))
    missing = {"cassette": tape, "cassette_mode": "replay"}
    for settings in (
        HttpSettings(base_url="nonsense", **missing),  # pyright: ignore[reportArgumentType]
        LocalSettings(**missing),  # pyright: ignore[reportArgumentType]
        ScriptedSettings(file=tmp_path / "nothing", **missing),  # pyright: ignore[reportArgumentType]
    ):
        client = create_client(settings)
        assert client.mistakes() == []
        async with client.serving():
            assert (await ask(client, chat("a"))).status == 200


async def test_a_relative_path_counts_from_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = create_client(ScriptedSettings(cassette=Path("tape.jsonl")))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with client.serving():
        await ask(client, chat("a"))
    assert len(lines(tmp_path / "tape.jsonl")) == 2


async def test_a_link_leads_to_a_tape_that_is_yet_to_be_made(tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "below" / "tape.jsonl")
    [recorded] = await record(link, chat("a"))
    [replayed] = await replay(tmp_path / "below" / "tape.jsonl", chat("a"))
    assert replayed.what_was_said == recorded.what_was_said
    assert link.is_symlink()


async def test_a_number_in_an_answer_is_no_port(tape: Path) -> None:
    asked = [chat(f"Open http://127.0.0.1:{port}/, then add up 40000 and 4321.") for port in (44321, 51234)]
    [recorded] = await record(tape, asked[0], replies=[completion("It is 44321.")])
    [replayed] = await replay(tape, asked[1])
    assert replayed.what_was_said == recorded.what_was_said


async def test_a_tape_that_another_launch_uses_is_refused(tape: Path) -> None:
    settings = ScriptedSettings(cassette=tape)
    first, second = create_client(settings), create_client(settings)
    async with first.serving():
        assert "somebody else records on it" in str(second.mistakes()[0])
        with pytest.raises(RunError, match="somebody else uses it"):
            async with second.serving():
                pass
    assert second.mistakes() == []


async def test_a_place_that_cant_be_written_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "tape.jsonl", tmp_path):
        [mistake] = create_client(ScriptedSettings(cassette=path)).mistakes()
        assert "can't be" in str(mistake)


async def test_a_large_conversation_is_recorded_and_replayed(tape: Path) -> None:
    pieces = ["word " * 60_000, "yes", "go on"]
    requests = [chat(*pieces[:1]), chat(*pieces)]
    recorded = await record(tape, *requests, replies=[completion("x" * 600_000), completion("two")])
    replayed = await replay(tape, *reversed(requests))
    assert [got.body for got in replayed] == [got.body for got in reversed(recorded)]
    assert tape.stat().st_size < len(requests[1].body) + 700_000


async def test_injected_faults_stay_outside(tape: Path) -> None:
    settings = ScriptedSettings(cassette=tape, chaos={"500": 1.0}, max_retries=0)
    client = create_client(settings)
    assert client.tape is not None
    async with client.serving():
        assert (await ask(client, chat("a"))).status == 500
    assert not tape.exists()


# A tape of the embedded model


def of_the_model(text: str, **fields: Any) -> ProviderRequest:
    return chat(text, max_tokens=12, temperature=0.8, **fields)


MODEL_REQUESTS = [of_the_model("Say hello."), of_the_model("Count to ten.", stream=True)]


async def test_the_shipped_tape_of_the_embedded_model_replays_bit_for_bit() -> None:
    expected = json.loads((TAPES / "smollm2-answers.json").read_text())
    client = create_client(LocalSettings(cassette=TAPES / "smollm2.jsonl", cassette_mode="replay"))
    assert client.mistakes() == []
    async with client.serving():
        for request, answer in zip(MODEL_REQUESTS, expected, strict=True):
            got = await ask(client, request)
            pieces = [got.body] if got.chunks is None else got.chunks
            assert [piece.decode() for piece in pieces] == answer
            assert got.endpoint == "embedded:smollm2-135m"


@needs_xllamacpp
@needs_smollm2
async def test_the_embedded_model_is_recorded_as_it_answers(tape: Path) -> None:
    client = create_client(LocalSettings(cassette=tape, slots=1))
    async with client.serving():
        recorded = [await ask(client, request) for request in MODEL_REQUESTS]
    again = create_client(LocalSettings(cassette=tape, cassette_mode="replay"))
    async with again.serving():
        replayed = [await ask(again, request) for request in reversed(MODEL_REQUESTS)]
    assert [got.what_was_said for got in reversed(replayed)] == [got.what_was_said for got in recorded]


@pytest.mark.parametrize(
    ("count", "words"), [(1, "once, and is asked for a 2nd"), (11, "11 times, and is asked for a 12th")]
)
async def test_what_is_used_up_is_told_with_how_often_it_was_recorded(tape: Path, count: int, words: str) -> None:
    await record(tape, *[chat("a")] * count)
    *_, last = await replay(tape, *[chat("a")] * (count + 1))
    assert words in str(last.error)
