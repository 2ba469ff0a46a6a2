"""What the interception does for a whole run: hooks on what passes, bounds, and calls that nobody waits for."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import read_lines, run_dir, vfx
from tests.support.provider import Provider, completion, scripted_provider

pytestmark = pytest.mark.anyio

ENVIRONMENT = """
from dataclasses import replace

import anyio
import openai
import vfx

class Job(vfx.Task):
    prompt: str = "Clean up."

    @vfx.intercept("request")
    def censor(self, message: vfx.Message, task: vfx.Task) -> vfx.Message | None:
        assert task is self
        if "hunter2" in message.text:
            return replace(message, content=message.text.replace("hunter2", "[secret]"))

    @vfx.intercept("response")
    async def guard(self, message: vfx.Message, trace: vfx.Trace) -> vfx.Message | None:
        kept = tuple(call for call in message.tool_calls if call.name != "rm")
        if kept != message.tool_calls:
            return replace(message, content="rm is not allowed", tool_calls=kept)

    @vfx.reward
    def clean(self, trace: vfx.Trace) -> float:
        return float(trace.last_reply == "done")

class Jobs(vfx.Taskset[Job]):
    def load(self):
        return [Job()]

class Agent(vfx.Harness):
    hangs_up: bool = False

    async def run(self, job: vfx.Job) -> None:
        options = {"base_url": job.endpoint.base_url, "api_key": job.endpoint.api_key, "max_retries": 0}
        messages = [{"role": "user", "content": job.prompt}]
        async with openai.AsyncOpenAI(**options) as sdk:
            if self.hangs_up:
                with anyio.move_on_after(0.3):
                    await sdk.chat.completions.create(model=job.endpoint.model, messages=messages)
                return
            for _ in range(5):
                answer = await sdk.chat.completions.create(model=job.endpoint.model, messages=messages)
                message = answer.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if message.tool_calls:
                    call = message.tool_calls[0]
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": "password: hunter2"})
                elif message.content == "done":
                    return
                else:
                    messages.append({"role": "user", "content": "Go on."})
"""


def call(name: str) -> dict[str, Any]:
    return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}


def on(provider: Provider) -> tuple[str, ...]:
    options = ("--client.base-url", provider.base_url, "--client.api-key-var", "none")
    return ("jobs.py", "-m", "m", "--harness.id", "jobs:Agent", *options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(ENVIRONMENT)
    return tmp_path


async def test_hooks_rewrite_results_and_refuse_calls_and_the_trace_tells(folder: Path) -> None:
    script = [
        completion(None, tool_calls=[call("rm")], finish_reason="tool_calls"),
        completion(None, tool_calls=[call("cat")], finish_reason="tool_calls"),
        completion("almost"),
        completion("done"),
    ]
    async with scripted_provider(*script) as provider:
        done = await vfx("eval", *on(provider), cwd=folder)
    assert done.code == 0, done.stderr
    sent = [request.json()["messages"] for request in provider.requests]
    assert sent[1][1] == {"role": "assistant", "content": "rm is not allowed"}
    assert [message["content"] for message in sent[3] if message["role"] == "tool"] == ["password: [secret]"]
    [record] = read_lines(run_dir(folder) / "traces.jsonl")
    assert record["reward"] == 1.0
    assert [(each["hook"], each["direction"]) for each in record["rewrites"]] == [
        ("guard", "response"),
        ("censor", "request"),
    ]
    assert "hunter2" not in json.dumps(record["nodes"])


async def test_a_program_that_waits_for_no_answer_has_failed(folder: Path) -> None:
    async with scripted_provider(default=completion("late", delay=5)) as provider:
        done = await vfx("eval", *on(provider), "--harness.hangs-up", "true", cwd=folder)
    assert done.code == 1
    [record] = read_lines(run_dir(folder) / "traces.jsonl")
    assert record["reward"] is None
    assert record["errors"][0]["message"] == "harness: it ended without waiting for an answer to any call"
    assert record["stop_condition"] == "no_answer"


async def test_a_request_beyond_the_bound_is_the_cause_of_the_error(folder: Path) -> None:
    async with scripted_provider() as provider:
        done = await vfx("eval", *on(provider), "--interception.max-body-bytes", "20", cwd=folder)
        assert provider.requests == []
    assert done.code == 1
    [record] = read_lines(run_dir(folder) / "traces.jsonl")
    assert record["errors"][0]["message"] == "the request has more than 20 bytes (--interception.max-body-bytes)"


async def test_a_hook_that_asks_for_something_else_is_told_at_once(folder: Path) -> None:
    (folder / "jobs.py").write_text(ENVIRONMENT.replace("message: vfx.Message, task: vfx.Task", "messages"))
    done = await vfx("eval", "jobs.py", "-m", "m", "--client.type", "scripted", cwd=folder)
    assert done.code == 2
    assert (
        "censor asks for messages; an intercept hook may ask for: message, runtime, state, task, trace" in done.stderr
    )
