import socket

import pytest

from tests.support.provider import Reply, scripted_provider
from tests.tools.serving import call, staged, text_of
from tests.tools.toolsets import Counter, Search
from vfx.authoring.tool_settings import ToolSettings
from vfx.errors import ToolsetError
from vfx.runtimes.programs import Programs
from vfx.tools.external import ask_for_tools, header_mistakes, resolve_headers
from vfx.tools.servers import ToolServers

pytestmark = pytest.mark.anyio


async def test_a_server_that_runs_elsewhere_is_used_in_place_of_one_of_ours() -> None:
    async with staged({"search": Search}, data={"search": {"label": "elsewhere"}}) as other, other.opened() as theirs:
        url = theirs.servers["search"].url
        async with staged({"search": Search}, data={"search": {"url": url}}) as stage, stage.opened() as tools:
            assert tools.servers["search"].url == url
            assert "elsewhere" in text_of(await call(url, "query", text="x"))


async def test_one_that_is_added_is_asked_for_its_tools_and_may_not_have_those_of_another() -> None:
    async with staged({"search": Search}) as other, other.opened() as theirs:
        url = theirs.servers["search"].url
        assert await ask_for_tools(url, {}, 10) == ("query", "whose", "thread_of", "leave", "wait")
        with pytest.raises(BaseExceptionGroup) as caught:
            async with staged({"own": Search}, data={"more": {"url": url}}):
                pass
        assert "the tool servers more and own all have a tool query" in str(caught.value.exceptions[0])


async def test_one_that_is_added_to_the_tasks_is_had_by_all_of_them() -> None:
    async with staged({"search": Search}) as other, other.opened() as theirs:
        settings = ToolSettings.model_validate({"more": {"url": theirs.servers["search"].url}})
        servers = ToolServers(ToolSettings(), settings, Programs())
        async with staged(own={"counter": Counter}) as stage:
            assert servers.names_for(stage.task) == ["more"]


async def test_headers_go_along_and_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_THE_SERVER", "from-outside")
    headers = {"X-Key": "env:KEY_OF_THE_SERVER", "X-Team": "blue"}
    async with scripted_provider(default=Reply(404)) as provider:
        with pytest.raises(ToolsetError):
            await ask_for_tools(f"http://127.0.0.1:{provider.port}/mcp", resolve_headers(headers), 5)
        seen = provider.requests[0].headers
    assert (seen["x-key"], seen["x-team"]) == ("from-outside", "blue")


def test_a_header_whose_variable_is_not_set_is_a_mistake() -> None:
    [mistake] = header_mistakes({"X-Key": "env:NOT_SET_ANYWHERE", "X-Team": "blue"}, "--taskset.tools.more")
    assert str(mistake) == "--taskset.tools.more.headers.X-Key: the environment variable NOT_SET_ANYWHERE is not set"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(401), "can't be used"),
        (Reply(200, body=b"<html>"), "can't be used"),
        (Reply(None, ending="hang"), "did not answer within 0.5 s"),
    ],
)
async def test_one_that_does_not_speak_the_protocol_is_refused(reply: Reply, told: str) -> None:
    async with scripted_provider(default=reply) as provider:
        with pytest.raises(ToolsetError, match=told):
            await ask_for_tools(f"http://127.0.0.1:{provider.port}/mcp", {}, 0.5 if reply.status is None else 5)


async def test_one_that_is_not_there_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ToolsetError, match="can't be used"):
        await ask_for_tools(f"http://127.0.0.1:{port}/mcp", {}, 5)
