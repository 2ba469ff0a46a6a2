"""Agents of other people, unmodified, under `vfx eval`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import read_lines, run_dir, vfx
from tests.support.provider import completion, scripted_provider
from vfx.authoring.registry import harness_class
from vfx.harnesses.presets import MiniSweAgent

pytestmark = pytest.mark.anyio

MINI_SWE_AGENT = "mini-swe-agent==2.4.6"


def install(package: str) -> Path:
    """The folder with the programs of `package`, in an environment of its own that is kept for the next time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "vfx-tests" / package.partition("==")[0]
    if not (folder / ".done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, capture_output=True)
        command = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{package} can't be installed: {done.stderr.strip()[-300:]}")
        (folder / ".done").touch()
    return folder / "bin"


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


def bash(command: str) -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    return {"id": "call-1", "type": "function", "function": {"name": "bash", "arguments": arguments}}


@pytest.mark.agents
@pytest.mark.timeout(400)
async def test_mini_swe_agent_solves_a_file_task(tmp_path: Path) -> None:
    programs = install(MINI_SWE_AGENT)
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    commands = ("cat add.py", "sed -i 's/a - b/a + b/' add.py", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    replies = [completion("THOUGHT", tool_calls=[bash(c)], finish_reason="tool_calls") for c in commands]
    async with scripted_provider(*replies) as provider:
        done = await vfx(
            *("eval", "./env.py", "-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none"),
            *("--harness.id", "mini-swe-agent", "--harness.variables.PATH", f"{programs}:{os.environ['PATH']}"),
            cwd=tmp_path,
        )
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["num_turns"], record["reward"], record["errors"]) == (3, 1.0, [])
    [observation, *_] = [node["message"] for node in record["nodes"] if node["message"]["role"] == "tool"]
    assert "return a - b" in observation["content"]


def test_presets_are_found_by_their_ids() -> None:
    assert harness_class("mini-swe-agent") is MiniSweAgent
