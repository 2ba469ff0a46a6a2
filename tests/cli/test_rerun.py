"""`vfx replay --rerun` from outside: programs run again on recorded answers, with their provider gone."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.test_cassette import ENVIRONMENT as AGENT_ENVIRONMENT
from tests.cli.test_cassette import absolute
from tests.harnesses.test_presets import CLAUDE_CODE, CODEX, MINI_SWE_AGENT, install, install_node
from tests.support.agent_replies import solve
from tests.support.command import read_lines, start_vfx, vfx
from tests.support.native_replies import message, message_stream, response, response_stream
from tests.support.processes import handles_signals
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider, stream

pytestmark = pytest.mark.anyio

ENVIRONMENT = """
import vfx

class Work(vfx.Task):
    @vfx.reward
    def said(self, trace):
        return float(len(trace.last_reply)) + trace.num_turns

    @vfx.metric
    def turns(self, trace):
        return trace.num_turns

class Env(vfx.Taskset[Work]):
    size: int = 2

    def load(self):
        for number in range(self.size):
            yield Work(prompt=f"task {number}", id=f"task-{number}")
"""

Answer = Callable[[Request], Reply]

# Asks without an SDK, which takes a second to load.
ASKING = """
import json, os, pathlib, sys, time, urllib.error, urllib.request
def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code
"""


async def record(
    tmp_path: Path,
    answer: Answer | Reply,
    *options: str,
    program: str | None = None,
    environment: str = ENVIRONMENT,
    code: int = 0,
) -> Path:
    """A finished run on a provider that is gone afterwards."""
    (tmp_path / "env.py").write_text(environment)
    if program is not None:
        (tmp_path / "agent.py").write_text(program)
        command = json.dumps([sys.executable, str(tmp_path / "agent.py")])
        options = ("--harness.id", "command", "--harness.argv", command, *options)
    async with scripted_provider(default=answer) as provider:
        done = await vfx(*arguments(provider), *options, cwd=tmp_path)
    assert done.code == code, done.stdout + done.stderr
    [folder] = (path.parent for path in tmp_path.glob("outputs/*/old/config.toml"))
    return folder


def arguments(provider: Provider) -> Sequence[str]:
    at = ("--client.base-url", provider.base_url, "--client.api-key-var", "none", "--client.max-retries", "0")
    return ("eval", "./env.py", "-m", "m", *at, "--name", "old", "--display", "none")


async def rerun(tmp_path: Path, old: Path, *options: str, code: int = 0) -> Any:
    """The summary of running it again."""
    done = await vfx("replay", old.relative_to(tmp_path), "--rerun", "--json", "--name", "new", *options, cwd=tmp_path)
    assert done.code == code, done.stdout + done.stderr
    return done.json


def conversations(folder: Path) -> dict[Any, Any]:
    """By rollout: what was said, and what it earned and cost."""
    return {
        (trace["task"]["key"], trace["rollout"]): (
            [(node["parent"], node["sampled"], node["message"]) for node in trace["nodes"]],
            [(call["finish_reasons"], call["usage"], call["model"]) for call in trace["calls"]],
            trace["reward"],
            trace["errors"],
        )
        for trace in read_lines(folder / "traces.jsonl")
    }


async def test_an_unchanged_run_has_the_same_conversations_and_rewards(tmp_path: Path) -> None:
    numbers = count(1)
    old = await record(tmp_path, lambda _: completion("x" * next(numbers), usage=(7, 2)), "-r", "3")
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    summary = await rerun(tmp_path, old)
    # Each rollout has its own answer again, though all of a task ask the same.
    assert conversations(old.parent / "new") == conversations(old)
    assert len({rewards for _, _, rewards, _ in conversations(old).values()}) == 6
    changes = summary["replay"]
    assert (changes["drifted"], changes["changed"], changes["unasked"], changes["kept_errored"]) == (0, 0, 0, 0)
    assert (summary["scored"], summary["usage"]["input_tokens"]) == (6, 42)
    assert json.loads((old.parent / "new/summary.json").read_text()) == summary
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


async def test_a_scripted_run_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    options = ("--client.type", "scripted", "--client.replies", '["one"]', "--name", "old", "--display", "none")
    await vfx("eval", "./env.py", *options, cwd=tmp_path)
    old = tmp_path / "outputs/env--scripted--chat/old"
    done = await vfx("replay", old, "--rerun", "--name", "new", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "its programs run again\n2 rollouts: 2 scored, 0 errored; 0 changed\ndrifted: 0\n" in done.stdout
    # A run on recorded answers is a record, too.
    again = await vfx("replay", old.parent / "new", "--rerun", "--name", "newer", cwd=tmp_path)
    assert "2 scored, 0 errored; 0 changed\ndrifted: 0\n" in again.stdout
    assert conversations(old.parent / "newer") == conversations(old)


async def test_a_changed_reward_is_shown(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("four"))
    (tmp_path / "env.py").write_text(ENVIRONMENT.replace("+ trace.num_turns", "* 2"))
    summary = await rerun(tmp_path, old)
    assert (summary["replay"]["changed"], summary["replay"]["drifted"]) == (2, 0)
    [row] = [row for row in summary["replay"]["differences"] if row["name"] == "said"]
    assert (row["old"], row["new"], row["difference"]) == (5.0, 8.0, 3.0)


# A program of each SDK with one tool. What the tool gives names the rollout's folder, another one in each run.
CHAT = """
import json, os, sys, openai
client = openai.OpenAI(max_retries=0)
messages = [{"role": "user", "content": sys.stdin.read()}]
tools = [{"type": "function", "function": {"name": "where", "parameters": {"type": "object"}}}]
while True:
    options = {"model": "any", "messages": messages, "tools": tools}
    if STREAM:
        with client.chat.completions.stream(**options) as events:
            for _ in events: pass
            message = events.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.create(**options).choices[0].message
    messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
    if not message.tool_calls: break
    for call in message.tool_calls:
        json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": TOOL})
"""
RESPONSES = """
import json, os, sys, openai
client = openai.OpenAI(max_retries=0)
tools = [{"type": "function", "name": "where", "parameters": {"type": "object"}}]
given, earlier = [{"role": "user", "content": sys.stdin.read()}], None
while True:
    options = {"model": "any", "input": given, "tools": tools, "previous_response_id": earlier}
    if STREAM:
        with client.responses.stream(**options) as events:
            for _ in events: pass
            answer = events.get_final_response()
    else:
        answer = client.responses.create(**options)
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls: break
    earlier = answer.id
    given = [{"type": "function_call_output", "call_id": call.call_id, "output": TOOL} for call in calls]
"""
ANTHROPIC = """
import json, os, sys, anthropic
client = anthropic.Anthropic(max_retries=0)
messages = [{"role": "user", "content": sys.stdin.read()}]
tools = [{"name": "where", "input_schema": {"type": "object"}}]
while True:
    options = {"model": "any", "messages": messages, "tools": tools, "max_tokens": 99}
    if STREAM:
        with client.messages.stream(**options) as events:
            answer = events.get_final_message()
    else:
        answer = client.messages.create(**options)
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls: break
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": TOOL} for call in calls]
    messages.append({"role": "user", "content": results})
"""
PROGRAMS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


def written(dialect: str, *, is_stream: bool, tool: str = "os.getcwd()") -> str:
    return PROGRAMS[dialect].replace("STREAM", str(is_stream)).replace("TOOL", tool)


def answering(dialect: str) -> Answer:
    """Calls a tool, then says something that is another text each time."""
    numbers = count(1)

    def answer(request: Request) -> Reply:
        body = request.json()
        is_stream, text = bool(body.get("stream")), f"It is number {next(numbers)}."
        if dialect == "chat":
            if any(message["role"] == "tool" for message in body["messages"]):
                return stream(*text.split(" ")) if is_stream else completion(text)
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "where", "arguments": '{"a": 1}'}}
            return (
                _streamed_call(call) if is_stream else completion(None, tool_calls=[call], finish_reason="tool_calls")
            )
        if dialect == "responses":
            write = response_stream if is_stream else response
            if body.get("previous_response_id"):
                return write(text, id=f"resp_{next(numbers)}")
            call = {"type": "function_call", "id": "f", "call_id": "c1", "name": "where", "arguments": '{"a": 1}'}
            thoughts = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
            return write(thoughts, call, id=f"resp_{next(numbers)}")
        write_message = message_stream if is_stream else message
        if len(body["messages"]) > 1:
            return write_message(text)
        thoughts = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        return write_message(
            thoughts, "Let me see.", {"type": "tool_use", "id": "t1", "name": "where", "input": {"a": 1}}
        )

    return answer


def _streamed_call(call: dict[str, Any]) -> Reply:
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": None, "tool_calls": [call]}, None),
        ({}, "tool_calls"),
    ]
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted-model"}
    events = [common | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
    chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return Reply(200, {"Content-Type": "text/event-stream"}, chunks=[*chunks, b"data: [DONE]\n\n"])


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("dialect", sorted(PROGRAMS))
async def test_programs_of_every_sdk_have_their_tools_and_answers_again(
    tmp_path: Path, dialect: str, *, is_stream: bool
) -> None:
    program = written(dialect, is_stream=is_stream)
    old = await record(tmp_path, answering(dialect), "-r", "2", "--taskset.size", "1", program=program)
    summary = await rerun(tmp_path, old)
    assert (summary["scored"], summary["turns"], summary["replay"]["drifted"]) == (2, 4, 0)
    assert (summary["replay"]["changed"], summary["replay"]["unasked"]) == (0, 0)
    # But for the folder that the tool told, all is as it was.
    masked = [_without_folders(conversations(folder)) for folder in (old, old.parent / "new")]
    assert masked[0] == masked[1]


def _without_folders(told: dict[Any, Any]) -> Any:
    for nodes, *_ in told.values():
        for _, _, said in nodes:
            if said["role"] == "tool":
                assert Path(said["content"]).name
                said["content"] = "folder"
    return told


async def test_what_is_on_no_record_fails_its_rollout_with_what_differs(tmp_path: Path) -> None:
    old = await record(tmp_path, answering("chat"), program=written("chat", is_stream=False, tool="'ten files'"))
    tool = "'ten files' if '0' in messages[0]['content'] else 'no such folder'"
    (tmp_path / "agent.py").write_text(written("chat", is_stream=False, tool=tool))
    done = await vfx("replay", old, "--rerun", "--name", "new", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "2 rollouts: 1 scored, 1 errored; 1 changed\ndrifted: 1\n  task-1 #0\n    drift: " in done.stdout
    assert "the nearest there differs at message 3 (tool)" in done.stdout
    assert "recorded: ten files" in done.stdout
    assert "asked:    no such folder" in done.stdout
    by_task = {trace["task"]["id"]: trace for trace in read_lines(old.parent / "new/traces.jsonl")}
    assert by_task["task-0"]["errors"] == []
    [error] = by_task["task-1"]["errors"]
    assert (error["kind"], by_task["task-1"]["stop_condition"]) == ("drift", "drift_error")
    # A gate for a job that wants every conversation as it was.
    gated = await rerun(tmp_path, old, "--replace", "--max-error-share", "0", code=1)
    assert (gated["replay"]["drifted"], gated["errors"]) == (1, {"drift": 1})


async def test_a_program_that_passes_over_the_refusal_fails_all_the_same(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("yes"), program=f"{ASKING}\nask('first'); ask('second')")
    careless = "assert [ask(text) for text in ('first', 'other', 'second')] == [200, 400, 400]"
    (tmp_path / "agent.py").write_text(f"{ASKING}\n{careless}")
    summary = await rerun(tmp_path, old, code=1)
    assert (summary["errors"], summary["replay"]["drifted"], summary["turns"]) == ({"drift": 2}, 2, 2)
    assert "recorded: first\n  asked:    other" in summary["replay"]["drifts"][0]["message"]


async def test_a_program_that_asks_for_less_is_told_of(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("yes"), program=f"{ASKING}\nask('same'); ask('same')")
    (tmp_path / "agent.py").write_text(f"{ASKING}\nask('same')")
    summary = await rerun(tmp_path, old)
    assert (summary["replay"]["unasked"], sorted(summary["replay"]["unasked_tasks"])) == (2, ["task-0", "task-1"])
    # The same once more than it was asked.
    (tmp_path / "agent.py").write_text(f"{ASKING}\nask('same'); ask('same'); ask('same')")
    summary = await rerun(tmp_path, old, "--replace", code=1)
    assert "once more than the 2 times on record" in summary["replay"]["drifts"][0]["message"]


async def test_a_rollout_that_its_provider_failed_stays_as_it_was(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        is_down = request.json()["messages"][0]["content"] == "task 1"
        return Reply(status=500, body=b'{"error": {"message": "down"}}') if is_down else completion("fine")

    old = await record(tmp_path, answer)
    summary = await rerun(tmp_path, old)
    assert (summary["scored"], summary["errors"], summary["planned"]) == (1, {"provider": 1}, 2)
    assert (summary["replay"]["kept_errored"], summary["replay"]["changed"]) == (1, 0)
    assert conversations(old.parent / "new") == conversations(old)


async def test_a_failure_that_the_program_got_over_comes_again(tmp_path: Path) -> None:
    """The first call is refused as too long; the program then asks for less."""
    program = f"{ASKING}\nif ask('long') == 503: ask('short')"
    down = Reply(status=503, body=b'{"error": {"message": "no room"}}')
    answer: Answer = lambda request: down if b"long" in request.body else completion("fine")  # noqa: E731
    old = await record(tmp_path, answer, program=program)
    summary = await rerun(tmp_path, old)
    assert (summary["scored"], summary["failed_calls"], summary["turns"]) == (2, 2, 2)
    assert (summary["replay"]["drifted"], summary["replay"]["changed"]) == (0, 0)


async def test_a_conversation_that_outgrew_the_context_ends_alike(tmp_path: Path) -> None:
    overflow = Reply(
        status=400, body=b'{"error": {"message": "maximum context length", "code": "context_length_exceeded"}}'
    )
    answer: Answer = lambda request: overflow if b"second" in request.body else completion("fine")  # noqa: E731
    program = f"{ASKING}\nask('first')\nif ask('second') == 400: raise SystemExit('too long')"
    old = await record(tmp_path, answer, program=program)
    summary = await rerun(tmp_path, old)
    assert summary["stop_conditions"] == {"context_length": 2}
    assert (summary["scored"], summary["replay"]["changed"]) == (2, 0)


async def test_a_program_that_crashed_is_run_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    program = f"{ASKING}\nask('same')\nif pathlib.Path({str(broken)!r}).exists(): raise SystemExit('broken')"
    old = await record(tmp_path, completion("yes"), program=program, code=1)
    broken.unlink()
    summary = await rerun(tmp_path, old)
    assert (summary["scored"], summary["errored"], summary["replay"]["changed"]) == (2, 0, 2)


async def test_what_was_never_finished_and_tasks_that_are_gone_are_left_out(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("yes"), "-r", "2", "-c", "1", "--taskset.size", "3")
    traces = old / "traces.jsonl"
    traces.write_bytes(b"".join(traces.read_bytes().splitlines(keepends=True)[1:]))
    (tmp_path / "env.py").write_text(ENVIRONMENT.replace('prompt=f"task {number}"', 'prompt=f"task {number % 2}"'))
    summary = await rerun(tmp_path, old)
    assert (summary["planned"], summary["scored"], summary["errored"]) == (3, 3, 0)
    [(reason, tasks)] = summary["replay"]["left_out_tasks"].items()
    assert "its task" in reason
    assert tasks == ["task-2"]
    assert summary["replay"]["left_out"] == {reason: 2}


async def test_rewards_that_compare_rollouts_are_computed(tmp_path: Path) -> None:
    group = """
    @vfx.group_reward
    def longest(self, traces):
        best = max(len(trace.last_reply) for trace in traces)
        return [float(len(trace.last_reply) == best) for trace in traces]

    @vfx.metric
"""
    environment = ENVIRONMENT.replace("\n    @vfx.metric\n", group)
    numbers = count(1)
    old = await record(tmp_path, lambda _: completion("x" * next(numbers)), "-r", "3", environment=environment)
    summary = await rerun(tmp_path, old, "-c", "1")
    assert (summary["rewards"]["longest"]["mean"], summary["replay"]["changed"]) == (pytest.approx(1 / 3), 0)


async def test_a_user_that_is_a_model_speaks_from_the_record(tmp_path: Path) -> None:
    environment = """
from typing import ClassVar
import vfx

class Errand(vfx.Task):
    user: ClassVar = vfx.ModelUser

    @vfx.reward
    def said(self, trace):
        return len(trace.transcript)

class Env(vfx.Taskset[Errand]):
    def load(self):
        yield Errand(name="r0")
"""
    numbers = count(1)

    def answer(request: Request) -> Reply:
        if request.json()["model"] == "m":
            return completion(f"answer {next(numbers)}")
        return completion("enough [DONE]" if next(numbers) > 3 else f"question {next(numbers)}")

    user = ("--taskset.task.user.model", "u", "--taskset.task.user.instructions", "You are {name}.")
    old = await record(tmp_path, answer, "-r", "2", "-c", "1", *user, environment=environment)
    summary = await rerun(tmp_path, old)
    assert conversations(old.parent / "new") == conversations(old)
    spoken = [call["reply"] for trace in read_lines(old / "traces.jsonl") for call in trace["side_calls"]]
    again = [call["reply"] for trace in read_lines(old.parent / "new/traces.jsonl") for call in trace["side_calls"]]
    assert len(spoken) == 3
    assert sorted(map(str, again)) == sorted(map(str, spoken))
    assert summary["replay"]["drifted"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-m", "other"), "-m: is no option of vfx replay --rerun"),
        (("--client.type", "scripted"), "--client.type: is no option of vfx replay --rerun"),
        (("--sampling.temperature", "0"), "--sampling.temperature: is no option of vfx replay --rerun"),
        (("-r", "2"), "-r: is no option of vfx replay --rerun"),
        (("--harness.argv", "[]", "--harness.nonsense", "1"), "--harness.argv"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    await vfx("eval", "./env.py", "--client.type", "scripted", "--name", "old", cwd=tmp_path)
    old = tmp_path / "outputs/env--scripted--chat/old"
    done = await vfx("replay", old, "--rerun", "--name", "new", *options, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (old.parent / "new").exists()


async def test_a_dry_run_shows_the_options_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    await vfx("eval", "./env.py", "--client.type", "scripted", "--name", "old", cwd=tmp_path)
    old = tmp_path / "outputs/env--scripted--chat/old"
    done = await vfx("replay", old, "--rerun", "--dry-run", "--timeout.rollout", "5", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "rollout = 5.0" in done.stdout
    assert [path.name for path in old.parent.iterdir()] == ["old"]


async def test_a_program_may_have_other_options(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("yes"), program=f"{ASKING}\nask('first')")
    other = tmp_path / "other.py"
    other.write_text("raise SystemExit('another program')")
    summary = await rerun(
        tmp_path,
        old,
        "--harness.argv",
        json.dumps([sys.executable, str(other)]),
        "--interception.type",
        "server",
        code=1,
    )
    assert summary["errors"] == {"harness": 2}


async def test_a_run_on_recorded_answers_is_not_gone_on_with(tmp_path: Path) -> None:
    old = await record(tmp_path, completion("yes"))
    await rerun(tmp_path, old)
    done = await vfx("eval", "--resume", old.parent / "new", cwd=tmp_path)
    assert done.code == 2
    assert "is a replay" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_and_keeps_what_is_finished(tmp_path: Path, signum: signal.Signals) -> None:
    program = f"""{ASKING}
prompt = sys.stdin.read()
ask(prompt)
if pathlib.Path(sys.argv[0]).with_name("slow").exists() and "1" in prompt:
    pathlib.Path(sys.argv[0]).with_name("waiting").touch()
    time.sleep(60)
"""
    old = await record(tmp_path, completion("yes"), "-c", "1", program=program)
    (tmp_path / "slow").touch()
    process = await start_vfx("replay", old, "--rerun", "--name", "new", "--json", cwd=tmp_path)
    with anyio.fail_after(30):
        await handles_signals(process.pid)
        while not (tmp_path / "waiting").exists():
            await anyio.sleep(0.02)
        os.kill(process.pid, signum)
        code = await process.wait()
        assert process.stdout
        summary = json.loads(b"".join([piece async for piece in process.stdout]))
        await process.aclose()
    assert code == 128 + signum
    assert (summary["scored"], summary["interrupted"], summary["exit_code"]) == (1, 1, code)
    assert len(read_lines(old.parent / "new/traces.jsonl")) == 1


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
async def test_an_agent_is_run_again(tmp_path: Path, harness: str, package: str, answer: Answer) -> None:
    programs = install(package) if harness == "mini-swe-agent" else install_node(package)
    path = ("--harness.variables.PATH", f"{programs}:/usr/bin:/bin")
    old = await record(tmp_path, answer, "-r", "2", "--harness.id", harness, *path, environment=AGENT_ENVIRONMENT)
    summary = await rerun(tmp_path, old)
    assert (summary["scored"], summary["reward"]["mean"], summary["turns"]) == (2, 1.0, 4), summary["replay"]["drifts"]
    assert (summary["replay"]["drifted"], summary["replay"]["changed"], summary["replay"]["unasked"]) == (0, 0, 0)
