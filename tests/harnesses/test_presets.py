"""Agents of other people, unmodified, under `vfx eval`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.agent_replies import COMMAND, USAGE, bash_call, solve
from tests.support.command import Done, read_lines, run_dir, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider
from vfx.authoring.harness import Endpoint, Job, ToolServer
from vfx.authoring.registry import harness_class
from vfx.authoring.task import Task
from vfx.harnesses.presets import ClaudeCode, Codex, MiniSweAgent
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

pytestmark = pytest.mark.anyio

MINI_SWE_AGENT = "mini-swe-agent==2.4.6"
# Newer ones may want a newer node.
CODEX = "@openai/codex@0.171.0"
CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.197"


def _installed(package: str, commands: Sequence[Sequence[str | Path]], folder: Path) -> None:
    """Run commands that install `package` into `folder`, which is kept for the next time."""
    if (folder / ".done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{package} can't be installed: {done.stderr.strip()[-300:]}")
    (folder / ".done").touch()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vfx-tests"


def install(package: str) -> Path:
    """The folder with the programs of a Python package, in an environment of its own."""
    folder = _cache() / package.replace("==", "-")
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
    _installed(package, [[sys.executable, "-m", "venv", "--clear", folder], pip], folder)
    return folder / "bin"


def install_node(package: str) -> Path:
    """The folder with the programs of a package for node, in a folder of its own."""
    if shutil.which("npm") is None:
        pytest.skip(f"{package} needs npm, and there is none")
    folder = _cache() / package.rpartition("/")[2].replace("@", "-")
    _installed(package, [["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, package]], folder)
    return folder / "node_modules/.bin"


ENVIRONMENT = """
import vfx

class Fix(vfx.Task):
    async def setup(self, runtime):
        await runtime.write("add.py", "def add(a, b):\\n    return a - b\\n")

    @vfx.reward
    async def is_fixed(self, runtime):
        result = await runtime.run(["python3", "-c", "from add import add; assert add(2, 3) == 5"])
        return float(result.is_ok)

class Env(vfx.Taskset[Fix]):
    def load(self):
        yield Fix(prompt="--no option this, but: fix add.py so that add(2, 3) is 5")
"""


async def evaluate(provider: Provider, harness: str, programs: Path, cwd: Path, *options: str) -> Done:
    (cwd / "env.py").write_text(ENVIRONMENT)
    return await vfx(
        *("eval", "./env.py", "-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none"),
        *("--harness.id", harness, "--harness.variables.PATH", f"{programs}:/usr/bin:/bin", *options),
        cwd=cwd,
    )


def recorded_calls(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls that the model made."""
    messages: list[dict[str, Any]] = [node["message"] for node in record["nodes"]]
    return [call for message in messages for call in message.get("tool_calls", ())]


def observations(record: dict[str, Any]) -> list[str]:
    """What tools answered."""
    return [str(node["message"]["content"]) for node in record["nodes"] if node["message"]["role"] == "tool"]


@pytest.mark.agents
@pytest.mark.timeout(400)
async def test_mini_swe_agent_solves_a_file_task(tmp_path: Path) -> None:
    programs = install(MINI_SWE_AGENT)
    commands = ("cat add.py", "sed -i 's/a - b/a + b/' add.py", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    replies = [completion("THOUGHT", tool_calls=[bash_call(c)], finish_reason="tool_calls") for c in commands]
    async with scripted_provider(*replies) as provider:
        done = await evaluate(provider, "mini-swe-agent", programs, tmp_path)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["num_turns"], record["reward"], record["errors"]) == (3, 1.0, [])
    assert "2.4.6" in record["agent"]["harness"]["program_version"]
    assert "return a - b" in observations(record)[0]


@pytest.mark.agents
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("harness", "package", "tool", "version"),
    [("codex", CODEX, "exec_command", "0.171.0"), ("claude-code", CLAUDE_CODE, "Bash", "2.1.197")],
)
async def test_an_agent_for_node_solves_a_file_task(
    harness: str, package: str, tool: str, version: str, tmp_path: Path
) -> None:
    programs = install_node(package)
    async with scripted_provider(default=solve) as provider:
        done = await evaluate(provider, harness, programs, tmp_path)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["num_turns"], record["reward"], record["errors"]) == (2, 1.0, [])
    assert version in record["agent"]["harness"]["program_version"]
    [call] = recorded_calls(record)
    assert (call["name"], COMMAND in json.loads(call["arguments"]).values()) == (tool, True)
    assert ["return a - b" in text for text in observations(record)] == [True]
    assert [(call["usage"]["input_tokens"], call["usage"]["output_tokens"]) for call in record["calls"]] == [USAGE] * 2
    # Claude Code asks the endpoint whether it is there, which is not the provider's concern.
    asked = [f"{request.method} {request.path.partition('?')[0]}" for request in provider.requests]
    assert set(asked) <= {"POST /v1/responses", "POST /v1/messages"}


@pytest.mark.agents
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_faulty", [False, True])
async def test_different_agents_at_one_time_are_all_scored(tmp_path: Path, is_faulty: bool) -> None:
    """With faults: some calls get a 500, some streams break off; each logical turn is in its graph once."""
    programs = {
        "codex": install_node(CODEX),
        "claude-code": install_node(CLAUDE_CODE),
        "mini-swe-agent": install(MINI_SWE_AGENT),
    }
    done: list[Done] = []

    async def run(harness: str) -> None:
        cwd = tmp_path / harness
        cwd.mkdir()
        done.append(await evaluate(provider, harness, programs[harness], cwd, "-r", "3"))

    calls = count(1)

    def answer(request: Request) -> Reply:
        reply, number = solve(request), next(calls)
        if is_faulty and number % 7 == 3:
            return Reply(500, body=b'{"error": {"message": "sorry"}}')
        if is_faulty and number % 5 == 4 and reply.chunks is not None:
            return replace(reply, chunks=list(reply.chunks)[:2], ending="reset")
        return reply

    async with scripted_provider(default=answer) as provider, anyio.create_task_group() as group:
        for harness in programs:
            group.start_soon(run, harness)
    assert [each.code for each in done] == [0, 0, 0], done
    records = [record for name in programs for record in read_lines(run_dir(tmp_path / name) / "traces.jsonl")]
    assert [(record["num_turns"], record["reward"], record["errors"]) for record in records] == [(2, 1.0, [])] * 9
    assert [sum(node["sampled"] for node in record["nodes"]) for record in records] == [2] * 9


@pytest.mark.parametrize(
    ("harness", "package"), [("codex", "@openai/codex"), ("claude-code", "@anthropic-ai/claude-code")]
)
async def test_a_missing_agent_is_a_mistake_that_says_how_to_install_it(
    harness: str, package: str, tmp_path: Path
) -> None:
    async with scripted_provider() as provider:
        done = await evaluate(provider, harness, tmp_path, tmp_path)
    assert done.code == 2
    assert f"npm install -g {package}" in done.stderr
    assert provider.requests == []


def test_presets_are_found_by_their_ids() -> None:
    assert harness_class("mini-swe-agent") is MiniSweAgent
    assert (harness_class("codex"), harness_class("claude-code")) == (Codex, ClaudeCode)


def test_codex_is_told_of_tool_servers_in_its_own_configuration() -> None:
    servers = {
        "notes": ToolServer("notes", 'http://127.0.0.1:9/mcp?key="x"'),
        "books": ToolServer("books", "https://books.example/mcp", {"X-Key": "secret"}),
    }
    task = Task(prompt="x")
    runtime = SubprocessRuntime(SubprocessSettings(), Programs())
    job = Job(Endpoint("http://127.0.0.1:1/v1", "secret", "m"), task.messages(), task, runtime, tools=servers)
    [text] = Codex().files_for(job).values()
    told = tomllib.loads(text)["mcp_servers"]
    assert {name: (entry["url"], entry["http_headers"]) for name, entry in told.items()} == {
        "notes": ('http://127.0.0.1:9/mcp?key="x"', {}),
        "books": ("https://books.example/mcp", {"X-Key": "secret"}),
    }


def test_presets_say_what_they_can_do() -> None:
    able = [harness.model_validate({}) for harness in (Codex, ClaudeCode)]
    assert all(harness.accepts_tools() and harness.accepts_user() for harness in able)
    assert not MiniSweAgent().accepts_tools()
    assert not MiniSweAgent().accepts_user()
