import sys
from pathlib import Path

import anyio
import pytest

import vfx.harnesses.program as helper
from tests.support.provider import Reply, completion, scripted_provider

pytestmark = pytest.mark.anyio


async def ask(url: str, program: str) -> str:
    """Run a program with the helper beside it, as a child that has only the standard library."""
    done = await anyio.run_process(
        [sys.executable, "-S", "-c", f"from program import *; {program}"],
        env={
            "PYTHONPATH": str(Path(str(helper.__file__)).parent),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "k",
            "OPENAI_MODEL": "m",
        },
        check=False,
    )
    return (done.stdout + done.stderr).decode()


async def test_text_is_asked_and_answered() -> None:
    async with scripted_provider(completion("häuser")) as provider:
        assert await ask(provider.base_url, "print(ascii(ask('hi', temperature=0)))") == "'h\\xe4user'\n"
    [request] = provider.requests
    assert request.json() == {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}
    assert request.headers["authorization"] == "Bearer k"


async def test_answer_without_text_is_empty() -> None:
    async with scripted_provider(completion(None)) as provider:
        assert await ask(provider.base_url, "print(repr(ask([{'role': 'user', 'content': 'x'}])))") == "''\n"


async def test_error_of_the_endpoint_is_raised_with_its_text() -> None:
    async with scripted_provider(Reply(400, body=b'{"error": "rollout stopped: max_turns"}')) as provider:
        assert "the endpoint answered 400: " in await ask(provider.base_url, "ask('x')")


async def test_answer_that_breaks_off_is_an_error() -> None:
    async with scripted_provider(Reply(200, body=b'{"choices": [', ending="close-early")) as provider:
        assert "broke off" in await ask(provider.base_url, "ask('x')")


@pytest.mark.parametrize("url", ["http://localhost:{}/v1"])
async def test_host_by_name_is_found(url: str) -> None:
    async with scripted_provider() as provider:
        assert await ask(url.format(provider.port), "print(ask('x'))") == "Hello.\n"
