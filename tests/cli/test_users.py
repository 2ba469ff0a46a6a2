"""Conversations with simulated users under `vfx eval`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.command import Done, read_lines, run_dir, start_vfx, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio

SCRIPTED = ("--client.type", "scripted")

ENVIRONMENT = """
from typing import ClassVar
import vfx

class Mood(vfx.State):
    questions: int = 0

class Curious(vfx.User):
    questions: int = 2

    def open(self, task):
        return f"I am {task.name}."

    def respond(self, messages, turn, task, state, runtime):
        assert runtime is not None
        state.questions += 1
        if turn == self.questions:
            return None
        return f"{task.name} asks {turn} after {messages[-1].text}"

class Talk(vfx.Task):
    user: ClassVar = Curious
    state_type: ClassVar = Mood

    @vfx.reward
    def asked(self, state):
        return state.questions

class Talks(vfx.Taskset[Talk]):
    size: int = 1
    prompt: str | None = None

    def load(self):
        for number in range(self.size):
            yield Talk(prompt=self.prompt, name=f"r{number}")

class Errand(vfx.Task):
    user: ClassVar = vfx.ModelUser

    @vfx.reward
    def turns(self, trace):
        return trace.num_turns

class Errands(vfx.Taskset[Errand]):
    size: int = 1

    def load(self):
        for number in range(self.size):
            yield Errand(name=f"r{number}")

class Shop(vfx.Toolset):
    state_type: ClassVar = Mood

    @vfx.tool
    async def sell(self, pieces: int) -> str:
        "Sell pieces; gives how many are sold by now."
        async with self.state.change() as mood:
            mood.questions += pieces
            return f"{mood.questions} sold"

class Buyer(vfx.User):
    def respond(self, state, messages):
        assert messages[-1].tool_calls == ()
        return None if state.questions > 5 else f"{state.questions} are too few"

class Deal(vfx.Task):
    user: ClassVar = Buyer
    state_type: ClassVar = Mood

    @vfx.reward
    def sold(self, state):
        return state.questions

class Deals(vfx.Taskset[Deal]):
    toolsets: ClassVar = [Shop]
    size: int = 1

    def load(self):
        for number in range(self.size):
            yield Deal(prompt="Hi", name=f"r{number}")

class Broken(vfx.User):
    def respond(self):
        raise ValueError("no idea")

class BrokenTalk(vfx.Task):
    user: ClassVar = Broken

    @vfx.reward
    def one(self): return 1

class BrokenTalks(vfx.Taskset[BrokenTalk]):
    def load(self): yield BrokenTalk(prompt="Hi")

class Unknown(vfx.Taskset):
    def load(self): yield BrokenTalk(prompt="Hi")
"""


def on(provider: Provider, group: str = "client") -> tuple[str, ...]:
    """Options for a client of a provider without a key."""
    return (f"--{group}.base-url", provider.base_url, f"--{group}.api-key-var", "none")


async def run(folder: Path, taskset: str, *options: str) -> Done:
    (folder / "talk.py").write_text(ENVIRONMENT)
    return await vfx("eval", f"./talk.py:{taskset}", *options, cwd=folder)


def said(record: dict[str, Any]) -> Sequence[str]:
    return [node["message"]["content"] for node in record["nodes"]]


def records(folder: Path) -> list[dict[str, Any]]:
    return read_lines(run_dir(folder) / "traces.jsonl")


async def test_the_user_opens_and_speaks_after_the_model_until_they_have_no_more_to_say(tmp_path: Path) -> None:
    replies = ("--client.replies", '["a", "b", "c"]')
    done = await run(tmp_path, "Talks", *SCRIPTED, *replies, "--taskset.task.user.questions", "1")
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert said(record) == ["I am r0.", "a", "r0 asks 0 after a", "b"]
    assert (record["reward"], record["state"], record["stop_condition"]) == (2, {"questions": 2}, None)


async def test_a_prompt_takes_the_place_of_the_opening_and_the_runs_limits_hold(tmp_path: Path) -> None:
    options = ("--client.replies", '["a", "b", "c"]', "--taskset.prompt", "Hello", "--max-turns", "2")
    done = await run(tmp_path, "Talks", *SCRIPTED, *options)
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert said(record) == ["Hello", "a", "r0 asks 0 after a", "b"]
    # Nobody would have answered to a second question.
    assert (record["stop_condition"], record["state"]) == ("max_turns", {"questions": 1})


async def test_a_user_who_never_ends_is_bounded(tmp_path: Path) -> None:
    options = ("--client.replies", '["a"]', "--taskset.task.user.questions", "1000", "--taskset.prompt", "Hello")
    done = await run(tmp_path, "Talks", *SCRIPTED, *options)
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert (record["num_turns"], record["stop_condition"]) == (101, "user_max_turns")


async def test_many_conversations_at_once_keep_apart(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        first = request.json()["messages"][0]["content"]
        return completion(f"to {first[5:-1]}", delay=0.02)

    async with scripted_provider(default=answer) as provider:
        done = await run(tmp_path, "Talks", "-m", "m", *on(provider), "--taskset.size", "32", "-c", "32")
    assert done.code == 0, done.stderr
    for record in records(tmp_path):
        name = record["task"]["name"]
        heard = f"{name} asks %d after to {name}"
        assert said(record) == [f"I am {name}.", f"to {name}", heard % 0, f"to {name}", heard % 1, f"to {name}"]
        assert record["state"] == {"questions": 3}


async def test_a_user_knows_what_tools_have_done(tmp_path: Path) -> None:
    """Model, tools and user in turns, in many rollouts that share a server."""

    def answer(request: Request) -> Reply:
        *_, last = request.json()["messages"]
        if last["role"] == "tool":
            return completion(f"I have {last['content']}.")
        function = {"name": "sell", "arguments": '{"pieces": 2}'}
        call = {"id": f"call-{len(request.json()['messages'])}", "type": "function", "function": function}
        return completion(None, tool_calls=[call], finish_reason="tool_calls")

    async with scripted_provider(default=answer) as provider:
        done = await run(tmp_path, "Deals", "-m", "m", *on(provider), "--taskset.size", "16")
    assert done.code == 0, done.stderr
    found = records(tmp_path)
    assert len(found) == 16
    for record in found:
        assert (record["reward"], record["num_turns"], record["state"]) == (6, 6, {"questions": 6})
        texts = [text for text in said(record) if text]
        assert texts == [
            *("Hi", "2 sold", "I have 2 sold.", "2 are too few", "4 sold", "I have 4 sold."),
            *("4 are too few", "6 sold", "I have 6 sold."),
        ]


async def test_a_model_plays_the_user_and_is_asked_once_for_each_answer_whatever_fails(tmp_path: Path) -> None:
    failures, lines = count(), {1: "first", 3: "second", 5: "third [DONE]"}

    def flaky(reply: Reply) -> Reply:
        kind = next(failures) % 3
        if kind == 0:
            return Reply(503, body=b"{}")
        return Reply(200, body=reply.body, ending="reset") if kind == 1 else reply

    def evaluated(request: Request) -> Reply:
        turns = sum(message["role"] == "assistant" for message in request.json()["messages"])
        return flaky(completion(f"answer {turns}", usage=(100, 10)))

    def simulated(request: Request) -> Reply:
        heard = sum(message["role"] == "user" for message in request.json()["messages"])
        return flaky(completion(lines[2 * heard - 1], usage=(1000, 7)))

    user = "taskset.task.user"
    async with scripted_provider(default=evaluated) as provider, scripted_provider(default=simulated) as model:
        options = (*on(provider), "--client.max-retry-wait", "0.1", *on(model, f"{user}.client"))
        options = (*options, f"--{user}.client.max-retry-wait", "0.1", f"--{user}.model", "u")
        options = (*options, f"--{user}.instructions", "You are {name}.", "--json")
        done = await run(tmp_path, "Errands", "-m", "m", *options)
        asked = [request.json() for request in model.requests]
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert said(record) == ["first", "answer 0", "second", "answer 1"]
    calls = record["side_calls"]
    assert [(call["purpose"], call["name"], call["model"]) for call in calls] == [("user", "ModelUser", "u")] * 3
    assert [call["error"] for call in calls] == [None] * 3
    assert sum(call["attempts"] for call in calls) == len(asked) > 3
    assert {request["model"] for request in asked} == {"u"}
    assert asked[0]["messages"][0]["content"].endswith("You are r0.")
    assert record["usage"]["input_tokens"] == 200
    assert done.json["usage"]["output_tokens"] == 20
    assert (done.json["side_usage"]["user"]["calls"], done.json["side_usage"]["user"]["input_tokens"]) == (3, 3000)


async def test_a_model_of_a_user_that_can_not_be_reached_is_the_users_error(tmp_path: Path) -> None:
    async with scripted_provider(default=Reply(401, body=b'{"error": {"message": "bad key"}}')) as model:
        options = (*SCRIPTED, *on(model, "taskset.task.user.client"), "--taskset.task.user.model", "u")
        done = await run(tmp_path, "Errands", *options)
    assert done.code == 1
    [record] = records(tmp_path)
    [error] = record["errors"]
    assert error["kind"] == "user"
    assert error["message"].startswith("open of ModelUser: ")
    assert "401" in error["message"]
    assert record["side_calls"][0]["error"]["kind"] == "provider"


async def test_a_user_that_fails_ends_its_rollout_with_the_cause(tmp_path: Path) -> None:
    done = await run(tmp_path, "BrokenTalks", *SCRIPTED)
    assert done.code == 1
    [record] = records(tmp_path)
    [error] = record["errors"]
    assert (error["kind"], error["message"]) == ("user", "respond of Broken: ValueError: no idea")
    assert "ValueError: no idea" in error["traceback"]
    assert record["num_turns"] == 1


@pytest.mark.parametrize(
    ("taskset", "options", "mistake"),
    [
        ("Talks", ("--harness.id", "command", "--harness.argv", '["true"]'), "--harness.continue-argv says how it"),
        ("Unknown", (), "write class Unknown(vfx.Taskset[BrokenTalk])"),
        ("Talks", ("--taskset.task.user.question", "1"), "did you mean --taskset.task.user.questions?"),
        (
            "Errands",
            ("--taskset.task.user.client.type", "http"),
            "name another with taskset.task.user.client.api_key_v",
        ),
    ],
)
async def test_what_can_not_work_is_refused_before_anything_starts(
    tmp_path: Path, taskset: str, options: Sequence[str], mistake: str
) -> None:
    done = await run(tmp_path, taskset, *SCRIPTED, *options)
    assert done.code == 2
    assert mistake in done.stderr
    assert not (tmp_path / "outputs").exists()


PROGRAM = """
import json, os, sys, urllib.request
from pathlib import Path
log = Path("log.json")
messages = json.loads(log.read_text()) if log.exists() else []
messages.append({"role": "user", "content": sys.stdin.read()})
body = json.dumps({"model": "m", "messages": messages}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
for again in range(3):
    # As the SDKs do, which may lose an answer that was given: the last one counts.
    request = urllib.request.Request(url, body, {**headers, "x-stainless-retry-count": str(again)})
    answer = json.loads(urllib.request.urlopen(request).read())
messages.append(answer["choices"][0]["message"])
log.write_text(json.dumps(messages))
"""


def program(folder: Path) -> tuple[str, ...]:
    (folder / "agent.py").write_text(PROGRAM)
    argv = [sys.executable, str(folder / "agent.py")]
    both = ("--harness.argv", json.dumps(argv), "--harness.continue-argv", json.dumps([*argv, "--continue"]))
    return ("--harness.id", "command", *both)


async def test_a_program_goes_on_with_what_the_user_says_and_repeats_are_no_answers(tmp_path: Path) -> None:
    done = await run(tmp_path, "Talks", *SCRIPTED, "--client.replies", '["a", "b", "c", "d"]', *program(tmp_path))
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert said(record) == ["I am r0.", "a", "r0 asks 0 after a", "b", "r0 asks 1 after b", "c"]
    assert (record["num_turns"], record["state"]) == (3, {"questions": 3})


async def test_a_program_that_goes_on_without_asking_the_model_is_an_error(tmp_path: Path) -> None:
    first = program(tmp_path)[:4]
    options = (*first, "--harness.continue-argv", '["true"]')
    done = await run(tmp_path, "Talks", *SCRIPTED, *options)
    assert done.code == 1
    [error] = records(tmp_path)[0]["errors"]
    assert error["kind"] == "harness"
    assert "no answer since they spoke" in error["message"]


async def test_a_run_that_was_killed_goes_on_with_whole_conversations(tmp_path: Path) -> None:
    """What has ended is not repeated; what was under way starts from its beginning."""
    (tmp_path / "talk.py").write_text(ENVIRONMENT)

    def answer(request: Request) -> Reply:
        turns = sum(message["role"] == "assistant" for message in request.json()["messages"])
        return completion(f"answer {turns}", delay=0.05)

    async with scripted_provider(default=answer) as provider:
        options = ("-m", "m", *on(provider), "--taskset.size", "6", "-c", "2")
        options = (*options, "--taskset.task.user.questions", "9")
        process = await start_vfx("eval", "./talk.py:Talks", *options, cwd=tmp_path)
        with anyio.fail_after(30):
            await provider.arrived(25)
        os.kill(process.pid, signal.SIGKILL)
        await process.aclose()
        folder = run_dir(tmp_path)
        finished = [line for line in (folder / "traces.jsonl").read_bytes().split(b"\n") if line.endswith(b"}")]
        asked = len(provider.requests)
        done = await vfx("eval", "--resume", folder, "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    whole = (folder / "traces.jsonl").read_bytes().split(b"\n")
    assert whole[: len(finished)] == finished
    assert len(provider.requests) - asked == 10 * (6 - len(finished))
    for record in records(tmp_path):
        assert record["num_turns"] == 10
        assert said(record)[0] == f"I am {record['task']['name']}."


async def test_a_model_that_plays_users_is_not_asked_when_an_environment_is_validated(tmp_path: Path) -> None:
    (tmp_path / "talk.py").write_text(ENVIRONMENT)
    async with scripted_provider() as model:
        options = (*on(model, "taskset.task.user.client"), "--taskset.task.user.model", "u")
        done = await vfx("validate", "./talk.py:Errands", *options, cwd=tmp_path)
        assert model.requests == []
    assert done.code == 0, done.stderr
    assert "1 task; none has a check; doing nothing earns 1.000" in done.stdout
