import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from tests.support.provider import Provider, Reply, completion, scripted_provider
from tests.support.tool_server import served, tool_process, tools
from vfx.authoring.harness import Endpoint, Job, Speaker, ToolServer
from vfx.authoring.task import Task
from vfx.errors import HarnessError, RolloutError, ToolsetError, root_cause
from vfx.harnesses.chat import Chat
from vfx.messages import Message
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

pytestmark = pytest.mark.anyio


def call(name: str, arguments: str | Mapping[str, Any] = "{}", number: int = 1) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": text}}


def calls(*asked: dict[str, Any], finish_reason: str = "tool_calls") -> Reply:
    for number, each in enumerate(asked):
        each["id"] = f"call-{number}"
    return completion(None, tool_calls=asked, finish_reason=finish_reason)


async def converse(
    chat: Chat, provider: Provider, servers: Mapping[str, str | ToolServer], user: Speaker | None = None
) -> None:
    job = Job(
        endpoint=Endpoint(provider.base_url, "secret", "m"),
        messages=[Message("user", "Go")],
        task=Task(prompt="Go"),
        runtime=SubprocessRuntime(SubprocessSettings(), Programs()),
        tools={name: ToolServer(name, url) if isinstance(url, str) else url for name, url in servers.items()},
        user=user,
    )
    async with chat.serving():
        await chat.run(job)


async def results(*asked: dict[str, Any], chat: Chat | None = None, finish_reason: str = "tool_calls") -> list[str]:
    """What the model was told of its calls."""
    replies = (calls(*asked, finish_reason=finish_reason), completion("done"))
    async with served(tools()) as url, scripted_provider(*replies) as provider:
        await converse(chat or Chat(), provider, {"support": url})
    sent = provider.requests[-1].json()["messages"]
    return [message["content"] for message in sent if message["role"] == "tool"]


async def test_tools_are_offered_called_and_their_results_sent_back() -> None:
    replies = (calls(call("add", {"a": 1, "b": 2})), calls(call("add", {"a": 3, "b": 4})), completion("10"))
    async with served(tools()) as url, scripted_provider(*replies) as provider:
        await converse(Chat(), provider, {"support": url})
    first, second, third = [request.json() for request in provider.requests]
    assert [message["role"] for message in first["messages"]] == ["user"]
    offer = next(tool["function"] for tool in first["tools"] if tool["function"]["name"] == "add")
    assert offer["description"] == "Add two numbers."
    assert offer["parameters"]["required"] == ["a", "b"]
    assert second["messages"][1]["tool_calls"][0]["function"]["name"] == "add"
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "call-0", "content": "3"}
    assert [message["role"] for message in third["messages"]] == ["user", *["assistant", "tool"] * 2]
    assert third["tools"] == first["tools"]


async def test_calls_of_one_answer_run_at_the_same_time_and_keep_their_order() -> None:
    started = anyio.current_time()
    seconds = (0.4, 0.1, 0.3)
    told = await results(*(call("wait", {"seconds": each}) for each in seconds))
    assert told == [f"waited {each:g} s" for each in seconds]
    assert anyio.current_time() - started < 20


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (call("no_such_tool"), "error: there is no tool 'no_such_tool'; there are: add, wait"),
        (call("add", '{"a": 1,'), "error: the arguments are not valid JSON: Expecting"),
        (call("add", '{"a": NaN, "b": 1}'), "error: the arguments are not valid JSON: NaN is no JSON"),
        (call("add", "[" * 300 + "]" * 300), "error: the arguments are not valid JSON: "),
        (call("talk", '{"count": "\\ud835"}'), "error: the arguments are not valid JSON: "),
        (call("add", "[1, 2]"), "error: the arguments must be a JSON object, got [1, 2]; the tool was not called"),
        (call("add", {"a": 1}), "error: "),
        (call("fail"), "error: Error executing tool fail"),
        (call("silent_failure"), "error: the tool failed and does not say why"),
        (call("count", {"what": "x"}), '{"what": "x", "count": 1}'),
        (call("words", ""), "one\ntwo"),
    ],
)
async def test_the_model_is_told_what_its_call_gave_and_what_is_wrong_with_it(
    asked: dict[str, Any], expected: str
) -> None:
    [told] = await results(asked)
    assert told.startswith(expected)


async def test_a_call_that_takes_too_long_is_given_up() -> None:
    told = await results(call("wait", {"seconds": 30}), call("add", {"a": 1, "b": 1}), chat=Chat(tool_timeout=0.3))
    assert told == ["error: the tool had not answered after 0.3 s", "2"]


async def test_a_long_result_is_cut_in_its_middle() -> None:
    [told] = await results(call("talk", {"count": 1000}), chat=Chat(max_result_chars=100))
    assert told == f"a{'x' * 49}\n[... 900 characters are left out here ...]\n{'x' * 49}z"


async def test_a_call_that_the_token_limit_cut_is_not_made() -> None:
    asked = (call("add", {"a": 1, "b": 1}), call("count", ""))
    told = await results(*asked, finish_reason="length")
    why = "the answer was cut off at its limit of tokens"
    assert told == ["2", f"error: the arguments are missing; {why}; the tool was not called"]
    [told] = await results(call("add", '{"a": 1'), finish_reason="length")
    assert told.endswith(f"; {why}; the tool was not called")


async def test_a_picture_follows_the_results_since_they_can_hold_text_only() -> None:
    replies = (calls(call("draw"), call("words")), completion("done"))
    async with served(tools()) as url, scripted_provider(*replies) as provider:
        await converse(Chat(), provider, {"support": url})
    *_, first, second, pictures = provider.requests[-1].json()["messages"]
    assert first["content"] == "a pixel\n[image/png, shown after the results of tools]"
    assert second["role"] == "tool"
    assert pictures["role"] == "user"
    assert pictures["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


async def failure(urls: Mapping[str, str], *replies: Reply, chat: Chat | None = None) -> RolloutError:
    async with scripted_provider(*replies) as provider:
        with pytest.raises((RolloutError, ExceptionGroup)) as caught:
            await converse(chat or Chat(), provider, urls)
    cause = root_cause(caught.value)
    assert isinstance(cause, RolloutError)
    return cause


async def test_two_servers_with_a_tool_of_one_name_can_not_be_told_apart() -> None:
    async with served(tools()) as one, served(tools()) as other:
        error = await failure({"one": one, "other": other})
    assert isinstance(error, HarnessError)
    assert "'one' and 'other' both have a tool 'add'" in str(error)


async def test_tools_of_several_servers_are_one_list() -> None:
    small = MCPServer("small")

    @small.tool(name="odd.name")
    def odd_name() -> str:  # pyright: ignore[reportUnusedFunction]
        return "odd"

    replies = (calls(call("odd_name"), call("add", {"a": 1, "b": 1})), completion("done"))
    async with served(tools()) as one, served(small) as other, scripted_provider(*replies) as provider:
        await converse(Chat(), provider, {"one": one, "other": other})
    told = [message["content"] for message in provider.requests[1].json()["messages"] if message["role"] == "tool"]
    assert told == ["odd", "2"]


async def test_a_server_that_is_not_there_is_an_error_with_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
    error = await failure({"books": url})
    assert isinstance(error, ToolsetError)
    assert str(error).startswith("tool server 'books' does not answer")


async def test_a_server_that_dies_amid_a_call_is_an_error_with_its_name() -> None:
    async with tool_process() as url:
        error = await failure({"books": url}, calls(call("die"), call("die")))
    assert isinstance(error, ToolsetError)
    assert str(error).startswith("tool server 'books' does not answer any more: ")


async def test_what_is_no_tool_server_is_an_error_with_its_name() -> None:
    async with scripted_provider(default=Reply(404)) as web:
        error = await failure({"books": web.base_url})
    assert isinstance(error, ToolsetError)
    assert str(error).startswith("tool server 'books' can't be used: ")


async def test_the_headers_of_a_server_go_with_every_request() -> None:
    servers = {"books": ToolServer("books", "", {"X-Key": "secret"}), "notes": ToolServer("notes", "")}
    seen: dict[str, list[str | None]] = {name: [] for name in servers}
    for name, server in servers.items():
        async with scripted_provider(default=Reply(404)) as web:
            with pytest.raises((RolloutError, ExceptionGroup)):
                await converse(Chat(), web, {name: replace(server, url=web.base_url)})
            seen[name] = [request.headers.get("x-key") for request in web.requests]
    assert set(seen["books"]) == {"secret"}
    assert set(seen["notes"]) == {None}


async def test_a_rollout_that_is_ended_amid_a_call_ends_at_once() -> None:
    replies = (calls(call("wait", {"seconds": 60}), call("wait", {"seconds": 60})), completion("done"))
    async with served(tools()) as url, scripted_provider(*replies) as provider:
        with anyio.move_on_after(1.0) as deadline, anyio.fail_after(15):
            await converse(Chat(), provider, {"support": url})
    assert deadline.cancelled_caught
    assert len(provider.requests) == 1


async def test_thoughts_go_back_with_calls_of_tools() -> None:
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call("words")]}
    thoughtful = completion(choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])
    async with served(tools()) as url, scripted_provider(thoughtful, completion("done")) as provider:
        await converse(Chat(), provider, {"support": url})
    assert provider.requests[1].json()["messages"][1]["reasoning_content"] == "hm"


async def test_many_rollouts_share_one_server_and_keep_apart() -> None:
    def answer(request: Any) -> Reply:
        messages: Sequence[dict[str, Any]] = request.json()["messages"]
        name = messages[0]["content"]
        done = sum(message["role"] == "tool" for message in messages)
        return completion(name) if done == 3 else calls(call("note", {"who": name, "text": f"{name}{done}"}))

    chat = Chat()
    async with served(tools()) as url, scripted_provider(default=answer) as provider, chat.serving():
        endpoint, runtime = (
            Endpoint(provider.base_url, "secret", "m"),
            SubprocessRuntime(SubprocessSettings(), Programs()),
        )
        async with anyio.create_task_group() as group:
            for number in range(32):
                servers = {"support": ToolServer("support", url)}
                messages = [Message("user", f"r{number}-")]
                group.start_soon(chat.run, Job(endpoint, messages, Task(), runtime, tools=servers))
    last = [request.json()["messages"] for request in provider.requests if len(request.json()["messages"]) == 7]
    assert len(last) == 32
    for messages in last:
        name = messages[0]["content"]
        assert messages[-1]["content"] == f"{name}0; {name}1; {name}2"


class Talker:
    """Says what it was given, then nothing more."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    async def respond(self) -> str | None:
        return self.lines.pop(0) if self.lines else None


async def test_the_user_speaks_after_answers_that_call_no_tool() -> None:
    replies = (completion("one"), calls(call("words")), completion("two"), completion("three"))
    async with served(tools()) as url, scripted_provider(*replies) as provider:
        await converse(Chat(), provider, {"support": url}, user=Talker("more", "and more"))
    *_, last = provider.requests
    said = [(message["role"], message["content"]) for message in last.json()["messages"]]
    assert said == [
        ("user", "Go"),
        ("assistant", "one"),
        ("user", "more"),
        ("assistant", None),
        ("tool", "one\ntwo"),
        ("assistant", "two"),
        ("user", "and more"),
    ]


async def test_a_conversation_that_nobody_opens_is_an_error() -> None:
    chat = Chat()
    async with scripted_provider() as provider, chat.serving():
        runtime = SubprocessRuntime(SubprocessSettings(), Programs())
        with pytest.raises(HarnessError, match="nobody else opens the conversation"):
            await chat.run(Job(Endpoint(provider.base_url, "secret", "m"), [], Task(), runtime))
    assert provider.requests == []
