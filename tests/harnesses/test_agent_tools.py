"""Agents of other people with tool servers of ours, and with users who go on with what they have done."""

import json
from pathlib import Path

import pytest

from tests.harnesses.test_presets import CLAUDE_CODE, CODEX, install_node, observations
from tests.support.agent_replies import bash_call
from tests.support.command import Done, read_lines, run_dir, vfx
from tests.support.native_replies import message, message_stream, response_stream
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = [pytest.mark.anyio, pytest.mark.agents, pytest.mark.timeout(500)]

ENVIRONMENT = """
from typing import ClassVar
import vfx

class Score(vfx.State):
    notes: list[str] = []

class Board(vfx.Toolset):
    state_type: ClassVar = Score

    @vfx.tool
    async def post(self, text: str) -> str:
        "Put a text on the board; gives all that this rollout has put there."
        async with self.state.change() as state:
            state.notes.append(text)
            return "; ".join(state.notes)

class Folder(vfx.Toolset):
    @vfx.tool
    def keep(self, text: str) -> str:
        "Keep a text; gives all that were kept."
        with open("kept.txt", "a") as file:
            file.write(f"{text}; ")
        return open("kept.txt").read()

class Work(vfx.Task):
    toolsets: ClassVar = {"folder": Folder}
    state_type: ClassVar = Score

    @vfx.reward
    def posted(self, state):
        return float(state.notes == [f"{self.name} 0", f"{self.name} 2"])

class Env(vfx.Taskset[Work]):
    toolsets: ClassVar = {"board": Board}
    size: int = 1

    def load(self):
        for number in range(self.size):
            yield Work(prompt=f"use the tools, r{number}.", name=f"r{number}")

class Chat(vfx.Task):
    user: ClassVar = vfx.ScriptedUser

    @vfx.reward
    def turns(self, trace):
        return float(trace.num_turns)

class Chats(vfx.Taskset[Chat]):
    def load(self):
        yield Chat(prompt="--no option this, but a greeting")
"""

# The servers that all rollouts share, and each one's own.
TOOLS = (("board", "post"), ("folder", "keep"))


def answer(request: Request, rounds: int) -> Reply:
    """Calls of tools in turn, and a last word."""
    body, path = request.json(), request.path.partition("?")[0]
    name = json.dumps(body).partition("use the tools, ")[2].partition(".")[0]
    if path == "/v1/responses":
        done = sum(item.get("type") == "function_call_output" for item in body["input"])
        if done == rounds:
            return response_stream(f"Done {done}.")
        server, tool = TOOLS[done % 2]
        call = {"type": "function_call", "id": f"fc_{done}", "call_id": f"call_{done}", "status": "completed"}
        arguments = json.dumps({"text": f"{name} {done}"})
        return response_stream({**call, "name": tool, "namespace": f"mcp__{server}", "arguments": arguments})
    if path == "/v1/messages":
        blocks = [block for turn in body["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
        done = sum(block["type"] == "tool_result" for block in blocks)
        write = message_stream if body.get("stream") else message
        if done == rounds:
            return write(f"Done {done}.", id="msg_last")
        server, tool = TOOLS[done % 2]
        call = {"type": "tool_use", "id": f"toolu_{done}", "name": f"mcp__{server}__{tool}"}
        # It takes messages of one id for one message.
        return write({**call, "input": {"text": f"{name} {done}"}}, id=f"msg_{done}")
    return Reply(404, body=b'{"error": {"message": "no such path"}}')


async def evaluate(provider: Provider, harness: str, taskset: str, cwd: Path, *options: str) -> Done:
    programs = install_node(CODEX if harness == "codex" else CLAUDE_CODE)
    (cwd / "env.py").write_text(ENVIRONMENT)
    return await vfx(
        *("eval", f"./env.py:{taskset}", "-m", "m", "--client.base-url", provider.base_url),
        *("--client.api-key-var", "none", "--harness.id", harness),
        *("--harness.variables.PATH", f"{programs}:/usr/bin:/bin", *options),
        cwd=cwd,
    )


@pytest.mark.parametrize("harness", ["codex", "claude-code"])
async def test_an_agent_uses_shared_tools_and_its_own_and_rollouts_keep_apart(harness: str, tmp_path: Path) -> None:
    async with scripted_provider(default=lambda request: answer(request, 4)) as provider:
        done = await evaluate(provider, harness, "Env", tmp_path, "--taskset.size", "8", "-c", "8")
        offered = json.dumps([tool for request in provider.requests for tool in request.json().get("tools", ())])
    assert done.code == 0, done.stderr
    assert "Put a text on the board" in offered
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert [(record["reward"], record["num_turns"], record["errors"]) for record in records] == [(1.0, 5, [])] * 8
    for record in records:
        name = record["task"]["name"]
        told = observations(record)
        expected = (f"{name} 0", f"{name} 1; ", f"{name} 0; {name} 2", f"{name} 1; {name} 3; ")
        assert all(text in seen for text, seen in zip(expected, told, strict=True)), told


@pytest.mark.parametrize("harness", ["codex", "claude-code"])
async def test_an_agent_goes_on_with_what_the_user_says(harness: str, tmp_path: Path) -> None:
    lines = ("--taskset.task.user.lines", '["--and another", "the last"]')
    async with scripted_provider(default=lambda request: answer(request, 0)) as provider:
        done = await evaluate(provider, harness, "Chats", tmp_path, *lines)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["num_turns"], record["stop_condition"], record["errors"]) == (3, None, [])
    texts = [json.dumps(node["message"]["content"]) for node in record["nodes"] if node["message"]["role"] == "user"]
    assert [line in text for line, text in zip(("greeting", "--and another", "the last"), texts[-3:], strict=True)]


async def test_an_agent_without_mcp_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    call = completion(None, tool_calls=[bash_call("true")])
    async with scripted_provider(default=call) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none")
        done = await vfx("eval", "./env.py:Env", *options, "--harness.id", "mini-swe-agent", cwd=tmp_path)
    assert done.code == 2
    assert "mini-swe-agent can't hand tools to the model" in done.stderr
    assert provider.requests == []
