"""`--client.cassette` from outside: recorded once, replayed with the provider gone."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harnesses.test_presets import (
    CLAUDE_CODE,
    CODEX,
    ENVIRONMENT,
    MINI_SWE_AGENT,
    install,
    install_node,
    observations,
    recorded_calls,
)
from tests.support.agent_replies import solve
from tests.support.command import Done, read_lines, vfx
from tests.support.native_replies import message_stream, response_stream
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
REPLAY = ("--client.cassette-mode", "replay")


def on(provider: Provider, *options: str) -> tuple[str, ...]:
    """Options for a run on a provider without a key, with a tape."""
    given = ("-m", "test-model", "--client.base-url", provider.base_url, "--client.api-key-var", "none")
    return (*given, "--client.cassette", "tape.jsonl", *options)


def records_of(cwd: Path, name: str) -> list[dict[str, Any]]:
    """The traces of the run of that name."""
    [traces] = cwd.glob(f"outputs/*/{name}/traces.jsonl")
    return read_lines(traces)


def outcomes(cwd: Path, name: str) -> list[tuple[Any, ...]]:
    """What each rollout said and earned, whatever the order in which they ended."""
    records = records_of(cwd, name)
    return sorted(
        (r["task"]["key"], r["rollout"], json.dumps([node["message"] for node in r["nodes"]]), str(r["rewards"]))
        for r in records
    )


async def test_the_shipped_tape_replays_without_the_model(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    env = {"VFX_DATA_DIR": str(tmp_path / "nothing")}
    runs = [await vfx("eval", "@", "configs/replay.toml", "--name", name, cwd=tmp_path, env=env) for name in "ab"]
    assert [done.code for done in runs] == [0, 0], runs
    assert "40 replayed  0 recorded  configs/tapes/arithmetic.jsonl" in runs[0].stdout
    assert outcomes(tmp_path, "a") == outcomes(tmp_path, "b")
    calls = [call for record in records_of(tmp_path, "a") for call in record["calls"]]
    assert {call["endpoint"] for call in calls} == {"embedded:smollm2-135m"}
    assert len({call["taped"] for call in calls}) == 40


async def test_rollouts_of_one_task_keep_their_different_answers(tmp_path: Path) -> None:
    replies = [completion(f"number {number}") for number in range(6)]
    async with scripted_provider(*replies) as provider:
        options = ("arithmetic", "-n", "2", "-r", "3", *on(provider))
        recorded = await vfx("eval", *options, "--name", "a", cwd=tmp_path)
        assert len(provider.requests) == 6
    replayed = await vfx("eval", *options, *REPLAY, "--name", "b", "-c", "1", cwd=tmp_path)
    assert (recorded.code, replayed.code) == (0, 0), (recorded, replayed)
    said = [sorted(r["nodes"][-1]["message"]["content"] for r in records_of(tmp_path, name)) for name in "ab"]
    assert said[0] == said[1] == [f"number {number}" for number in range(6)]


async def test_a_replay_needs_no_key_and_no_provider_and_a_recording_needs_both(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        await vfx("eval", "arithmetic", "-n", "1", *on(provider), cwd=tmp_path)
        base = provider.base_url
    options = ("eval", "arithmetic", "-n", "1", "-m", "test-model", "--client.base-url", base)
    tape = ("--client.cassette", "tape.jsonl")
    assert (await vfx(*options, *tape, *REPLAY, cwd=tmp_path)).code == 0
    recording = await vfx(*options, *tape, cwd=tmp_path)
    assert recording.code == 2
    assert "OPENAI_API_KEY" in recording.stderr


async def test_the_key_is_not_on_the_tape(tmp_path: Path) -> None:
    key = "sk-9d1e0c55aa71"

    def echo(request: Request) -> Reply:
        return completion(f"you said {request.headers['authorization']}")

    async with scripted_provider(default=echo) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.cassette", "tape.jsonl")
        done = await vfx("eval", "arithmetic", "-n", "1", *options, cwd=tmp_path, env={"OPENAI_API_KEY": key})
    assert done.code == 0
    tape = (tmp_path / "tape.jsonl").read_text()
    assert "you said Bearer ***" in tape
    assert key not in tape


async def test_a_changed_prompt_is_told_with_its_difference_and_what_helps(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        options = ("reverse-text", "-n", "4", *on(provider))
        await vfx("eval", *options, cwd=tmp_path)
    changed = ("--taskset.system-prompt", "Say it backwards.", "--name", "b")
    done = await vfx("eval", *options, *changed, *REPLAY, cwd=tmp_path)
    assert done.code == 1
    assert "not on the tape tape.jsonl" in done.stdout
    assert "--client.cassette-ignore" in done.stdout
    assert "stopped after 4 rollouts that all failed alike" in done.stdout
    [message] = {record["errors"][0]["message"] for record in records_of(tmp_path, "b")[:1]}
    assert "differs in message 1 (system), content" in message
    assert "asked:    Say it backwards." in message


async def test_what_is_ignored_may_differ(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        options = ("reverse-text", "-n", "2", *on(provider), "--sampling.seed")
        await vfx("eval", *options, "1", "--name", "a", cwd=tmp_path)
    drifted = await vfx("eval", *options, "2", *REPLAY, "--name", "b", cwd=tmp_path)
    ignored = await vfx(
        "eval", *options, "2", *REPLAY, "--client.cassette-ignore", '"seed":[0-9]+', "--name", "c", cwd=tmp_path
    )
    assert (drifted.code, ignored.code) == (1, 0)
    assert outcomes(tmp_path, "a") == outcomes(tmp_path, "c")


async def test_a_resumed_run_gets_no_answer_twice(tmp_path: Path) -> None:
    numbers = iter(range(100))
    async with scripted_provider(default=lambda _: completion(f"number {next(numbers)}")) as provider:
        options = on(provider, "-n", "1", "--taskset.size", "1")
        first = await vfx("eval", "arithmetic", *options, "-r", "3", "--name", "a", cwd=tmp_path)
        [folder] = tmp_path.glob("outputs/*/a")
        extended = await vfx("eval", "--resume", folder, "-r", "5", cwd=tmp_path)
        assert (first.code, extended.code) == (0, 0), extended.stderr
        assert len(provider.requests) == 5
        # A run of its own gets the tape from its start.
        fresh = await vfx("eval", "arithmetic", *options, "-r", "5", "--name", "b", cwd=tmp_path)
        assert fresh.code == 0
        assert len(provider.requests) == 5
    for name in "ab":
        said = sorted(record["nodes"][-1]["message"]["content"] for record in records_of(tmp_path, name))
        assert said == [f"number {number}" for number in range(5)]


async def test_a_recording_run_that_is_resumed_goes_on_with_its_tape(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        options = on(provider, "--client.cassette-mode", "record")
        await vfx("eval", "arithmetic", *options, "-n", "2", "--name", "a", cwd=tmp_path)
        [folder] = tmp_path.glob("outputs/*/a")
        done = await vfx("eval", "--resume", folder, "-n", "4", cwd=tmp_path)
        assert done.code == 0, done.stderr
        assert len(provider.requests) == 4
    assert len(read_lines(tmp_path / "tape.jsonl")) == 1 + 4


PROGRAM = """
import os

import openai
import vfx


class Env(vfx.Taskset):
    def load(self):
        yield vfx.Task(prompt="one")


class Program(vfx.Harness):
    async def run(self, job):
        endpoint = job.endpoint
        client = openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=2)
        messages = []
        for text in os.environ["QUESTIONS"].split():
            messages.append({"role": "user", "content": text})
            try:
                answer = await client.chat.completions.create(model=endpoint.model, messages=messages)
            except openai.BadRequestError:
                break
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
"""
BY_PROGRAM = ("eval", "./env.py", "--harness.id", "./env.py")


async def test_a_program_that_passes_over_its_drift_is_errored_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(PROGRAM)
    async with scripted_provider() as provider:
        options = (*BY_PROGRAM, *on(provider))
        recorded = await vfx(*options, cwd=tmp_path, env={"QUESTIONS": "one two"})
    assert recorded.code == 0, recorded.stdout
    changed = (*options, *REPLAY, "--name", "b", "--retries.max-attempts", "3")
    replayed = await vfx(*changed, cwd=tmp_path, env={"QUESTIONS": "one three"})
    assert replayed.code == 1
    [record] = records_of(tmp_path, "b")
    assert (record["num_turns"], record["stop_condition"], record["attempt"]) == (1, "drift_error", 0)
    assert [error["kind"] for error in record["errors"]] == ["drift"]
    assert "differs in message 3 (user), content" in record["errors"][0]["message"]


async def test_what_an_attempt_recorded_that_was_tried_again_is_not_replayed(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(PROGRAM)
    replies = [completion("first"), *[Reply(500, {}, b"{}")] * 3, completion("second"), completion("third")]
    async with scripted_provider(*replies) as provider:
        options = (*BY_PROGRAM, *on(provider), "--client.max-retries", "0", "--retries.max-attempts", "2")
        recorded = await vfx(*options, "--name", "a", cwd=tmp_path, env={"QUESTIONS": "one two"})
    assert recorded.code == 0, recorded.stdout
    assert "3 recorded" in recorded.stdout
    replayed = await vfx(*options, *REPLAY, "--name", "b", cwd=tmp_path, env={"QUESTIONS": "one two"})
    assert replayed.code == 0, replayed.stdout
    assert outcomes(tmp_path, "a") == outcomes(tmp_path, "b")


@pytest.mark.parametrize(
    ("tape", "options", "words"),
    [
        (None, REPLAY, "there is no such file"),
        (b"", REPLAY, "nothing is recorded on it"),
        (b"# a file of somebody's\n", (), "it is no tape of vfx"),
        (b'{"vfx_tape":9}\n', (), "format 9"),
        (b'{"vfx_tape":1,"id":"a","endpoint":"e","masks":1}\n{}\n', REPLAY, "line 2 is no exchange"),
    ],
)
async def test_a_tape_that_cant_be_used_is_a_mistake(
    tmp_path: Path, tape: bytes | None, options: tuple[str, ...], words: str
) -> None:
    if tape is not None:
        (tmp_path / "tape.jsonl").write_bytes(tape)
    given = ("--client.type", "scripted", "--client.cassette", "tape.jsonl", *options)
    done = await vfx("eval", "arithmetic", *given, cwd=tmp_path)
    assert done.code == 2
    assert words in done.stderr
    assert "tape.jsonl" in done.stderr
    assert not (tmp_path / "outputs").exists()


async def test_a_mode_without_a_tape_is_a_mistake(tmp_path: Path) -> None:
    done = await vfx("eval", "arithmetic", "--client.type", "scripted", *REPLAY, cwd=tmp_path)
    assert done.code == 2
    assert "cassette_mode is of use only with a tape: name it with --client.cassette" in done.stderr


async def test_injected_faults_are_not_recorded(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        chaos = ("--client.chaos.500", "0.5", "--client.max-retry-wait", "0", "--client.max-retries", "20")
        done = await vfx("eval", "arithmetic", "-n", "10", *on(provider), *chaos, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "injected by --client.chaos" in done.stdout
    lines = read_lines(tmp_path / "tape.jsonl")
    assert len(lines) == 1 + 10
    assert not any("status" in line for line in lines)


# Agents of other people


def absolute(request: Request) -> Reply:
    """Answers codex and Claude Code with commands that name the working directory, as their models do."""
    body = request.body.decode()
    folder = re.findall(r"/[\w/.-]*vfx-[0-9a-f]{16}/[0-9a-f]{16}", body)[0]
    command = f"cat {folder}/add.py; sed -i 's/a - b/a + b/' {folder}/add.py"
    path = request.path.partition("?")[0]
    if path == "/v1/responses":
        if "function_call_output" in body:
            return response_stream(f"Fixed {folder}/add.py.")
        call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"}
        return response_stream({**call, "name": "exec_command", "arguments": json.dumps({"cmd": command})})
    if path == "/v1/messages":
        if '"tool_result"' in body:
            return message_stream(f"Fixed {folder}/add.py.")
        arguments = {"command": command, "description": "Fix it"}
        return message_stream({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": arguments})
    return Reply(404, {}, b"{}")


@pytest.mark.agents
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("harness", "package", "answer"),
    [
        ("codex", CODEX, solve),
        ("codex", CODEX, absolute),
        ("claude-code", CLAUDE_CODE, solve),
        ("claude-code", CLAUDE_CODE, absolute),
        ("mini-swe-agent", MINI_SWE_AGENT, solve),
    ],
)
async def test_an_agent_replays_in_other_working_directories(
    tmp_path: Path, harness: str, package: str, answer: Callable[[Request], Reply]
) -> None:
    programs = install(package) if harness == "mini-swe-agent" else install_node(package)
    (tmp_path / "env.py").write_text(ENVIRONMENT)

    async def evaluate(name: str, *options: str) -> Done:
        program = ("--harness.id", harness, "--harness.variables.PATH", f"{programs}:/usr/bin:/bin")
        return await vfx("eval", "./env.py", "-r", "2", *program, "--name", name, *options, cwd=tmp_path)

    async with scripted_provider(default=answer) as provider:
        options = on(provider)
        recorded = await evaluate("a", *options)
    replayed = await evaluate("b", *options, *REPLAY)
    assert (recorded.code, replayed.code) == (0, 0), (recorded, replayed)
    for name in "ab":
        for record in records_of(tmp_path, name):
            assert (record["num_turns"], record["reward"], record["errors"]) == (2, 1.0, [])
            assert ["return a - b" in text for text in observations(record)] == [True]
    if answer is absolute:
        told = [json.dumps(recorded_calls(record)) for name in "ab" for record in records_of(tmp_path, name)]
        assert len({re.findall("vfx-[0-9a-f]{16}/[0-9a-f]{16}", text)[0] for text in told}) == 4
