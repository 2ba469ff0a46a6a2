import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.tiny_gguf import write_tiny_gguf
from vfx.clients import local_model
from vfx.clients.base import HttpSettings, LocalSettings, ProviderRequest, ProviderResponse
from vfx.clients.http import HttpClient
from vfx.clients.local import LocalClient, Model
from vfx.dialects.chat import read_completion
from vfx.dialects.chat_stream import ChatAssembler
from vfx.errors import ProviderError, RunError

pytestmark = pytest.mark.anyio

needs_xllamacpp = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: pip install 'vfx[local]'"
)
needs_smollm2 = pytest.mark.skipif(
    not local_model.is_installed(), reason="the embedded model is not installed: vfx model install"
)


@pytest.fixture
def tiny(tmp_path: Path) -> Model:
    return Model(write_tiny_gguf(tmp_path / "tiny.gguf"), "tiny", None)


def request(text: str = "hi", **fields: Any) -> ProviderRequest:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 16, **fields}
    return ProviderRequest("chat/completions", json.dumps(body).encode(), is_stream=bool(fields.get("stream")))


async def ask(client: LocalClient, text: str = "hi", **fields: Any) -> ProviderResponse:
    async with client.send(request(text, **fields)) as response:
        return response


def text_of(response: ProviderResponse) -> str:
    return read_completion(json.loads(response.body)).messages[0].text


def child_of(client: LocalClient) -> int:
    assert client.pid
    return client.pid


def is_running(pid: int) -> bool:
    """False also for one that is dead and that nobody has asked after."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    if not stat.parent.parent.joinpath("self").exists():
        return (
            subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout[:1]
            != b"Z"
        )
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until_gone(pid: int) -> None:
    with anyio.fail_after(5):
        while is_running(pid):
            await anyio.sleep(0.05)


@needs_xllamacpp
async def test_it_answers_and_ends_with_the_context(tiny: Model) -> None:
    client = LocalClient(LocalSettings(), model=tiny)
    async with client.serving():
        response = await ask(client)
        pid = child_of(client)
    assert (response.status, response.error) == (200, None)
    assert json.loads(response.body)["model"] == "tiny"
    assert (client.default_model, client.endpoint) == ("tiny", "embedded:tiny")
    assert not is_running(pid)


@needs_xllamacpp
async def test_equal_requests_get_equal_answers_and_no_cached_prompt(tiny: Model) -> None:
    client = LocalClient(LocalSettings(slots=2), model=tiny)
    texts: list[str] = []
    prompt = "tell me a long story " * 20
    async with client.serving():
        for _ in range(3):
            response = await ask(client, prompt)
            texts.append(text_of(response))
            assert not read_completion(json.loads(response.body)).usage.cached_tokens
    assert len(set(texts)) == 1


@needs_xllamacpp
async def test_it_streams(tiny: Model) -> None:
    client = LocalClient(LocalSettings(), model=tiny)
    assembler = ChatAssembler()
    async with client.serving(), client.send(request(stream=True)) as response:
        assert response.chunks
        async for chunk in response.chunks:
            assembler.feed(chunk)
    assert assembler.is_complete


@needs_xllamacpp
async def test_an_answer_without_a_bound_of_its_own_is_bounded(tiny: Model) -> None:
    client = LocalClient(LocalSettings(max_tokens=5), model=tiny)
    async with client.serving():
        response = await ask(client, max_tokens=None)
    assert (read_completion(json.loads(response.body)).usage.output_tokens or 0) <= 5


@needs_xllamacpp
async def test_an_overlong_prompt_is_told_apart(tiny: Model) -> None:
    client = LocalClient(LocalSettings(context=256), model=tiny)
    async with client.serving():
        response = await ask(client, "word " * 400)
    assert response.error
    assert response.error.truncated


@needs_xllamacpp
async def test_more_calls_than_slots_all_get_an_answer(tiny: Model) -> None:
    client = LocalClient(LocalSettings(slots=2), model=tiny)
    statuses: list[int] = []

    async def one() -> None:
        statuses.append((await ask(client)).status)

    async with client.serving(), anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(one)
    assert statuses == [200] * 12


@needs_xllamacpp
async def test_others_cannot_use_its_server(tiny: Model) -> None:
    client = LocalClient(LocalSettings(), model=tiny)
    async with client.serving():
        assert client.server
        stranger = HttpClient(HttpSettings(base_url=client.server, api_key_var=None))
        async with stranger.serving(), stranger.send(request()) as response:
            assert response.status == 401


@needs_xllamacpp
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
async def test_its_key_is_in_no_argument_and_no_environment(tiny: Model) -> None:
    client = LocalClient(LocalSettings(), model=tiny)
    async with client.serving():
        process = anyio.Path(f"/proc/{child_of(client)}")
        arguments = (await process.joinpath("cmdline").read_bytes()).split(b"\0")
        environment = (await process.joinpath("environ").read_bytes()).split(b"\0")
    assert [os.path.basename(argument) for argument in arguments[1:]] == [b"-u", b"-P", b"llama_child.py", b""]
    inherited = {f"{name}={value}".encode() for name, value in os.environ.items()}
    # The terminal's size may be set beside os.environ.
    assert {entry for entry in environment if entry and not entry.startswith((b"COLUMNS=", b"LINES="))} <= inherited


@needs_xllamacpp
async def test_a_call_tells_that_the_model_died(tiny: Model) -> None:
    client = LocalClient(LocalSettings(), model=tiny)
    async with client.serving():
        await ask(client)
        os.kill(child_of(client), signal.SIGKILL)
        with anyio.fail_after(10), pytest.raises(ProviderError, match=r"embedded model died: .*signal 9") as caught:
            await ask(client)
    assert caught.value.fatal


@needs_xllamacpp
async def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    client = LocalClient(LocalSettings(), model=Model(broken, "broken", None))
    with pytest.raises(RunError, match="embedded model"):
        async with client.serving():
            pass


async def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"damaged")
    client = LocalClient(LocalSettings(), model=Model(damaged, "damaged", "0" * 64))
    with pytest.raises(RunError, match=r"damaged.*vfx model install"):
        async with client.serving():
            pass


@needs_xllamacpp
async def test_it_ends_when_the_run_is_killed(tiny: Model) -> None:
    program = f"""
import anyio
from pathlib import Path
from vfx.clients.base import LocalSettings
from vfx.clients.local import LocalClient, Model

async def main():
    client = LocalClient(LocalSettings(), model=Model(Path({str(tiny.path)!r}), "tiny", None))
    async with client.serving():
        print(client.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
    async with await anyio.open_process([sys.executable, "-c", program], stderr=None) as run:
        assert run.stdout
        with anyio.fail_after(20):
            child = int(await run.stdout.receive())
        assert is_running(child)
        run.kill()
        await until_gone(child)


def test_what_is_missing_is_told_with_the_ways_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VFX_DATA_DIR", str(tmp_path))
    (mistake,) = LocalClient(LocalSettings()).mistakes()
    text = str(mistake)
    assert len(text.splitlines()) == 3
    for part in (str(tmp_path), "vfx model install", "vfx eval arithmetic -m MODEL --client.base-url URL"):
        assert part in text


async def test_calling_before_serving_is_a_bug(tiny: Model) -> None:
    with pytest.raises(RuntimeError, match="not serving"):
        await ask(LocalClient(LocalSettings(), model=tiny))


@needs_xllamacpp
@needs_smollm2
async def test_the_real_model_adds() -> None:
    client = LocalClient(LocalSettings())
    assert client.mistakes() == []
    begun = time.monotonic()
    async with client.serving():
        response = await ask(client, "What is 3 + 4?")
    assert "7" in text_of(response)
    assert time.monotonic() - begun < 60
