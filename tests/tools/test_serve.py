import base64
from typing import Any

import anyio
import pytest

from tests.tools.serving import call, post, staged, text_of
from tests.tools.toolsets import Answers

pytestmark = pytest.mark.anyio


async def test_whatever_a_tool_gives_or_raises_is_a_result_and_the_server_goes_on() -> None:
    async with staged({"answers": Answers}, data={"answers": {"call_timeout": 0.3}}) as stage, stage.opened() as tools:
        url = tools.servers["answers"].url
        assert await call(url, "fail") == _error("the shelf is empty")
        assert await call(url, "fail_silently") == _error("ValueError")
        assert await call(url, "leave") == _error("leave calls sys.exit(3)")
        assert await call(url, "look_up") == _error("KeyError: 'salt'")
        assert await call(url, "give_lock") == _error_like(await call(url, "give_lock"), "can't be told as JSON")
        assert await call(url, "sleep") == _error("sleep had not ended after 0.3 s")
        assert await call(url, "sleep_in_thread") == _error("sleep_in_thread had not ended after 0.3 s")
        unknown = text_of(await call(url, "fale"))
        assert unknown.startswith("there is no tool 'fale'; there are: fail, ")
        assert text_of(await call(url, "fail", why="x")).endswith("there is no such argument; there are: none")
        picture = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
        assert await call(url, "picture") == {"content": [picture], "isError": False}


async def test_calls_of_plain_tools_run_side_by_side() -> None:
    async with staged({"answers": Answers}) as stage, stage.opened() as tools:
        url = tools.servers["answers"].url
        results: list[bool] = []

        async def meet() -> None:
            results.append((await call(url, "meet"))["isError"])

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(meet)
                group.start_soon(meet)
        assert results == [False, False]


async def test_what_is_no_request_is_refused_and_the_server_goes_on() -> None:
    async with staged({"answers": Answers}) as stage, stage.opened() as tools:
        url = tools.servers["answers"].url
        call_of_nothing = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}
        bodies: list[Any] = [{}, [], call_of_nothing]
        for body in bodies:
            response = await post(url, body)
            assert response.status_code >= 400 or "error" in response.json()
        assert (await call(url, "picture"))["isError"] is False


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _error_like(result: dict[str, Any], part: str) -> dict[str, Any]:
    text = text_of(result)
    assert part in text
    return _error(text)


async def test_the_cause_in_a_group_and_a_part_that_is_not_complete_are_told() -> None:
    async with staged(shared={"answers": Answers}) as stage, stage.opened() as tools:
        url = tools.servers["answers"].url
        in_group, half = await call(url, "fail_in_a_group"), await call(url, "half_a_part")
    assert text_of(in_group) == "the shelf is empty"
    assert "a part of type resource is not complete" in text_of(half)
