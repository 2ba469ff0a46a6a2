from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import read_lines, run_dir, vfx

pytestmark = pytest.mark.anyio

ENVIRONMENT = """
import vfx

class Echo(vfx.DialogueTask):
    def respond(self, messages):
        assert messages[-1].role == "assistant"
        if len(messages) > 5:
            return None
        return f"You said {messages[-1].text}"

    @vfx.reward
    def turns(self, trace):
        return trace.num_turns

class AsyncEcho(Echo):
    async def respond(self, messages):
        return super().respond(messages)

class Broken(Echo):
    def respond(self, messages):
        return 3

class Silent(vfx.Task):
    @vfx.reward
    def one(self): return 1

class Tasks(vfx.Taskset):
    kind: str = "Echo"
    def load(self):
        yield globals()[self.kind](prompt="Hello")
"""


async def played(folder: Path, kind: str, *options: str) -> dict[str, Any]:
    (folder / "echo.py").write_text(ENVIRONMENT)
    scripted = ("--client.type", "scripted", "--client.replies", '["a", "b", "c"]')
    choice = ("--harness.id", "dialogue", "--taskset.kind", kind)
    await vfx("eval", "./echo.py", *scripted, *choice, *options, cwd=folder)
    [record] = read_lines(run_dir(folder) / "traces.jsonl")
    return record


def said(record: dict[str, Any]) -> Sequence[str]:
    return [node["message"]["content"] for node in record["nodes"]]


@pytest.mark.parametrize("kind", ["Echo", "AsyncEcho"])
async def test_the_task_speaks_after_the_model_until_it_has_no_more_to_say(tmp_path: Path, kind: str) -> None:
    record = await played(tmp_path, kind)
    assert said(record) == ["Hello", "a", "You said a", "b", "You said b", "c"]
    assert record["reward"] == 3


async def test_the_runs_own_limits_hold(tmp_path: Path) -> None:
    record = await played(tmp_path, "Echo", "--max-turns", "2")
    assert (record["num_turns"], record["stop_condition"], record["reward"]) == (2, "max_turns", 2)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("Broken", ("task", "respond of Broken must give text, or None to end, got 3")),
        ("Silent", ("harness", "the harness dialogue needs a task that responds: Silent is no vfx.DialogueTask")),
    ],
)
async def test_a_task_that_does_not_take_part_is_an_error(tmp_path: Path, kind: str, error: tuple[str, str]) -> None:
    [found] = (await played(tmp_path, kind))["errors"]
    assert (found["kind"], found["message"]) == error
