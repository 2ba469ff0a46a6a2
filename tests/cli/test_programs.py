"""Programs of all kinds under `vfx eval`: SDKs, an agent with tools, and those that don't want to end."""

import json
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.support.command import Done, read_lines, run_dir, start_vfx, vfx
from tests.support.processes import descendants, is_alive, survivors
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider, stream

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for leftovers in /proc"),
]

PYTHON = sys.executable

ENVIRONMENT = """
import vfx

class Work(vfx.Task):
    @vfx.reward
    def has_turns(self, trace):
        return float(trace.num_turns)

class Env(vfx.Taskset[Work]):
    size: int = 1

    def load(self):
        for number in range(self.size):
            yield Work(prompt=f"task {number}", system_prompt="Be brief.")
"""


async def run(
    tmp_path: Path, provider: Provider, program: str, *options: str, mark: str = "", argv: tuple[str, ...] = ()
) -> tuple[Done, list[dict[str, Any]]]:
    """Evaluate a Python program; with a mark, nothing that has it may be left."""
    done = await vfx(*arrange(tmp_path, provider, program, *options, argv=argv), cwd=tmp_path, env=env(tmp_path, mark))
    if mark:
        assert survivors(mark) == []
    assert os.listdir(tmp_path / "tmp") == []
    return done, read_lines(run_dir(tmp_path) / "traces.jsonl")


def env(tmp_path: Path, mark: str) -> dict[str, str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {"TMPDIR": str(tmp_path / "tmp"), "MARK": mark}


def arrange(
    tmp_path: Path, provider: Provider, program: str, *options: str, argv: tuple[str, ...] = ()
) -> tuple[str, ...]:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "agent.py").write_text(program)
    command = json.dumps([PYTHON, str(tmp_path / "agent.py"), *argv])
    return (
        *("eval", "./env.py", "-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none"),
        *("--harness.id", "command", "--harness.argv", command, "--harness.runtime.env", "MARK"),
        *("--harness.runtime.stop-grace", "0.3", *options),
    )


SDK = """
import sys, openai
client = openai.OpenAI()
prompt = sys.stdin.read()
messages = [{"role": "user", "content": prompt}]
answer = client.chat.completions.create(model="any", messages=messages)
messages += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "more"}]
pieces = client.chat.completions.create(
    model="any", messages=messages, stream=True, stream_options={"include_usage": True}
)
print("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices))
"""


async def test_openai_sdk_streaming_and_not(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return stream("two ", "words", usage=(20, 2)) if request.json().get("stream") else completion("one")

    async with scripted_provider(default=answer) as provider:
        _, records = await run(tmp_path, provider, SDK, "--taskset.size", "4", "-r", "2")
    assert len(records) == 8
    for record in records:
        assert record["errors"] == []
        assert record["num_turns"] == 2
        assert (record["usage"]["input_tokens"], record["usage"]["output_tokens"]) == (25, 5)
        texts = [node["message"]["content"] for node in record["nodes"]]
        assert texts == [f"Be brief.\n\n{record['task']['data']['prompt']}", "one", "more", "two words"]


AGENT = '''
"""An agent with two tools, through chat completions and nothing else."""
import json, pathlib, subprocess, sys
from program import complete

def run(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=10)
    return done.stdout + done.stderr

def write(path, text):
    pathlib.Path(path).write_text(text)
    return "written"

def tool(function, *names):
    text = {"type": "string"}
    parameters = {"type": "object", "properties": dict.fromkeys(names, text), "required": list(names)}
    return {"type": "function", "function": {"name": function.__name__, "parameters": parameters}}

FUNCTIONS = {"run": run, "write": write}
TOOLS = [tool(run, "command"), tool(write, "path", "text")]

messages = [
    {"role": "system", "content": pathlib.Path(sys.argv[2]).read_text()},
    {"role": "user", "content": pathlib.Path(sys.argv[1]).read_text()},
]
for _ in range(10):
    message = complete(messages, tools=TOOLS)["choices"][0]["message"]
    messages.append(message)
    calls = message.get("tool_calls") or []
    for call in calls:
        try:
            result = FUNCTIONS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
        except Exception as error:
            result = f"error: {error}"
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    if not calls:
        break
else:
    sys.exit("no answer after ten turns")
print(messages[-1]["content"])
'''


def tool_call(name: str, **arguments: str) -> dict[str, Any]:
    return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


async def test_an_agent_of_forty_lines_uses_tools(tmp_path: Path) -> None:
    import vfx.harnesses.program as helper

    replies = [
        completion(None, tool_calls=[tool_call("write", path="x.txt", text="41")], finish_reason="tool_calls"),
        completion(None, tool_calls=[tool_call("run", command="expr $(cat x.txt) + 1")], finish_reason="tool_calls"),
        completion("42"),
    ]
    async with scripted_provider(*replies) as provider:
        # In the working directory, the helper is found by PYTHONPATH.
        options = ("--harness.files", str(helper.__file__), "--harness.variables.PYTHONPATH", "{workdir}")
        argv = ("{prompt_file}", "{system_prompt_file}")
        done, [record] = await run(tmp_path, provider, AGENT, *options, argv=argv)
    assert done.code == 0
    assert record["num_turns"] == 3
    roles = [node["message"]["role"] for node in record["nodes"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert record["nodes"][5]["message"]["content"] == "42\n"


ASK = """
import json, os, urllib.request
def ask(text="x"):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
"""

ZOO = {
    "crash": (ASK + "ask()\nraise SystemExit('gave up')", "crash", "exit code 1; the end of its output: gave up"),
    "killed": ("import os\nos.kill(os.getpid(), 11)", "killed", "killed by SIGSEGV"),
    "provider": (ASK + "ask('fail')", "provider_error", "500"),
    "memory": (
        "x = bytearray(b'x') * 300_000_000\nimport time\ntime.sleep(60)",
        "out_of_memory",
        "more than 0.2 GB (--harness.runtime.memory)",
    ),
    "cpu": ("while True: pass", "cpu_limit", "CPU time (--harness.runtime.cpu-seconds)"),
    "timeout": ("import time\ntime.sleep(60)", "timeout", "harness timeout"),
}


@pytest.mark.parametrize("name", ZOO)
async def test_each_failure_has_its_own_cause(tmp_path: Path, name: str) -> None:
    program, condition, message = ZOO[name]
    limits = {"memory": ("memory", "0.2"), "cpu": ("cpu-seconds", "1")}
    flags = [f"--harness.runtime.{flag}={value}" for flag, value in [limits[name]]] if name in limits else []
    seconds = "1.5" if name == "timeout" else "20"

    def answer(request: Request) -> Reply:
        return Reply(500, body=b"{}") if "fail" in request.body.decode() else completion("x")

    async with scripted_provider(default=answer) as provider:
        retries = ("--client.max-retries", "0", "--timeout.rollout", seconds)
        done, [record] = await run(tmp_path, provider, program, *retries, *flags, mark=secrets.token_hex(8))
    assert done.code == 1
    [error] = record["errors"]
    assert record["stop_condition"] == condition
    assert message in error["message"]


async def test_what_was_reached_by_the_deadline_is_scored(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        options = ("--timeout.rollout", "1.5")
        done, [record] = await run(tmp_path, provider, ASK + "ask()\nimport time\ntime.sleep(60)", *options)
    assert done.code == 0
    assert (record["stop_condition"], record["reward"], record["errors"]) == ("timeout", 1.0, [])


STRAGGLERS = (
    ASK
    + """
import pathlib, signal, subprocess, sys, time
number = int(sys.argv[1].split()[-1])
canary = pathlib.Path(sys.argv[2])
LATER = f"import time, pathlib; time.sleep(3); pathlib.Path({str(canary)!r}).touch()"
if number == 0:
    # Wrapper, worker that ignores SIGTERM and keeps the pipe, helper with a session of its own.
    helper = f"setsid {sys.executable} -c '{LATER.replace(chr(39), chr(34))}' & trap '' TERM; sleep 60"
    subprocess.run(["sh", "-c", f"sh -c '{helper.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'; true"])
elif number == 1:
    # Ends well, and leaves a child that holds the pipe and calls again.
    ask()
    if os.fork() == 0:
        time.sleep(1)
        ask("too late")
        canary.touch()
elif number == 2:
    sys.stdout.write("x" * 50_000_000)
    ask()
elif number == 3:
    ask()
    sys.exit(0)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(6):
        os.fork()
    time.sleep(60)
"""
)


async def test_bad_programs_end_in_time_and_leave_nothing(tmp_path: Path) -> None:
    """B15, with siblings that behave."""
    mark = secrets.token_hex(8)
    canary = tmp_path / "canary"
    async with scripted_provider() as provider:
        options = ("--taskset.size", "5", "--timeout.rollout", "2", "--max-error-share", "1")
        with anyio.fail_after(20):
            _, records = await run(tmp_path, provider, STRAGGLERS, *options, mark=mark, argv=("{prompt}", str(canary)))
        await anyio.sleep(1.5)
        asked = [request.json()["messages"][0]["content"] for request in provider.requests]
    assert not canary.exists()
    assert "too late" not in asked
    by_task = {record["task"]["data"]["prompt"]: record for record in records}
    conditions = [by_task[f"task {number}"]["stop_condition"] for number in range(5)]
    assert conditions == ["timeout", None, None, None, "timeout"]
    for record in records:
        assert record["timing"]["agent"]["end"] - record["timing"]["agent"]["start"] < 2 + 5


async def test_program_that_is_killed_stops_the_provider(tmp_path: Path) -> None:
    """B06, case 4: the provider must not go on for a program that is gone."""
    program = (
        ASK + "import threading, time\nthreading.Thread(target=ask).start()\ntime.sleep(1)\nos.kill(os.getpid(), 9)"
    )
    async with scripted_provider(default=Reply(None, ending="hang")) as provider:
        _, [record] = await run(tmp_path, provider, program, "-c", "1", "--taskset.size", "1")
        for request in provider.requests:
            with anyio.fail_after(1):
                await request.gone.wait()
    assert record["stop_condition"] == "killed"
    assert record["num_turns"] == 0


NASTY = (
    ASK
    + """
import signal, subprocess, time
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
subprocess.Popen(["sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300"])
subprocess.Popen(["sleep", "300"], start_new_session=True, env={})
ask()
time.sleep(300)
"""
)


async def test_kill_of_vfx_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    async with scripted_provider(default=Reply(None, ending="hang")) as provider:
        argv = arrange(tmp_path, provider, NASTY, "--taskset.size", "32", "-c", "32")
        process = await start_vfx(*argv, cwd=tmp_path, env=env(tmp_path, mark))
        with anyio.fail_after(30):
            await provider.arrived(32)
        below = descendants(process.pid)
        assert len(below) > 32 * 4
        os.kill(process.pid, signal.SIGKILL)
        await process.aclose()
        with anyio.fail_after(3):
            while any(map(is_alive, below)) or survivors(mark) or os.listdir(tmp_path / "tmp"):
                await anyio.sleep(0.02)


@pytest.mark.parametrize("times", [1, 2])
async def test_interrupt_with_open_streams_and_nasty_programs(tmp_path: Path, times: int) -> None:
    """B14."""
    mark = secrets.token_hex(8)

    def answer(request: Request) -> Reply:
        return stream(*["piece "] * 100, chunk_delay=0.6)

    async with scripted_provider(default=answer) as provider:
        argv = arrange(tmp_path, provider, NASTY, "--taskset.size", "8", "-c", "4")
        process = await start_vfx(*argv, cwd=tmp_path, env=env(tmp_path, mark))
        with anyio.fail_after(30):
            await provider.arrived(4)
        for _ in range(times):
            os.killpg(process.pid, signal.SIGINT)
            await anyio.sleep(0.05)
        with anyio.fail_after(10 if times == 1 else 4):
            assert await process.wait() == 130
        assert survivors(mark) == []
        assert os.listdir(tmp_path / "tmp") == []
        assert len(provider.requests) == 4
        for request in provider.requests:
            with anyio.fail_after(1):
                await request.gone.wait()
        assert process.stderr is not None
        text = b"".join([piece async for piece in process.stderr]).decode()
        await process.aclose()
    assert "Traceback" not in text
    assert len(read_lines(run_dir(tmp_path) / "attempts.jsonl")) == 4


async def test_endpoint_is_closed_to_all_but_its_own_program(tmp_path: Path) -> None:
    """B26, from outside, while the program runs; and nothing of the operator's reaches the program."""
    (tmp_path / "tmp").mkdir()
    program = (
        ASK
        + f"""
import pathlib
path = pathlib.Path({str(tmp_path / "told")!r})
path.with_suffix(".part").write_text(json.dumps(dict(os.environ)))
path.with_suffix(".part").rename(path)
import time
time.sleep(1.0)
ask()
"""
    )
    async with scripted_provider() as provider:
        options = arrange(tmp_path, provider, program)
        secret = {"PROVIDER_KEY": "sk-operators-own", "OPENAI_API_KEY": "sk-another"}
        options = (*options, "--client.api-key-var", "PROVIDER_KEY")
        options = tuple(option for i, option in enumerate(options) if "none" not in (option, *options[i + 1 : i + 2]))
        process = await start_vfx(*options, cwd=tmp_path, env={**env(tmp_path, ""), **secret})
        with anyio.fail_after(10):
            while not (tmp_path / "told").exists():
                await anyio.sleep(0.01)
        told = json.loads((tmp_path / "told").read_text())
        assert not any("sk-" in value for value in told.values())
        key, url = told["OPENAI_API_KEY"], f"{told['OPENAI_BASE_URL']}/chat/completions"
        body = {"model": "m", "messages": [{"role": "user", "content": "intruder"}]}
        own = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient() as http:
            statuses = [
                (await http.post(url, json=body, headers=headers)).status_code
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": key[:-1]})
            ]
            foreign = [
                (await http.post(url, json=body, headers={**own, **headers})).status_code
                for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"})
            ]
        assert statuses == [401, 401, 401]
        assert all(400 <= status < 500 for status in foreign)
        assert provider.requests == []
        for pid in (process.pid, *descendants(process.pid)):
            assert key not in Path(f"/proc/{pid}/cmdline").read_text()
        with anyio.fail_after(10):
            assert await process.wait() == 0
        await process.aclose()
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert record["num_turns"] == 1
    for path in run_dir(tmp_path).iterdir():
        assert key not in path.read_text()
        assert "sk-operators" not in path.read_text()


HUNGRY = """
import sys, vfx

class Small(vfx.Task):
    pass

class Env(vfx.Taskset[Small]):
    def load(self):
        yield Small(prompt="x", resources=vfx.TaskResources(memory=0.1))

class Hungry(vfx.Harness):
    async def run(self, job):
        program = "x = bytearray(b'x') * 300_000_000; import time; time.sleep(60)"
        return await job.runtime.run([sys.executable, "-c", program])
"""


async def test_a_tasks_own_memory_bound_ends_its_program(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(HUNGRY)
    done = await vfx("eval", "./env.py", "--harness.id", "./env.py", "--client.type", "scripted", cwd=tmp_path)
    assert done.code == 1
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert record["stop_condition"] == "out_of_memory"
    assert "more than 0.1 GB" in record["errors"][0]["message"]


BY_FILE = """
import sys, vfx

class Env(vfx.Taskset):
    def load(self):
        yield vfx.Task(prompt="-- say 'hi' \\U0001f30d")

class ByFile(vfx.Harness):
    async def run(self, job: vfx.Job) -> vfx.ProgramResult:
        program = (
            "import os, sys, openai;"
            "prompt = open(sys.argv[1], encoding='utf-8').read();"
            "message = {'role': 'user', 'content': prompt};"
            "openai.OpenAI().chat.completions.create(model=os.environ['OPENAI_MODEL'], messages=[message])"
        )
        return await job.runtime.run([sys.executable, "-c", program, job.prompt_file], env=job.env)
"""


async def test_a_harness_of_ones_own_gives_its_program_the_prompt_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(BY_FILE)
    done = await vfx("eval", "./env.py", "--harness.id", "./env.py", "--client.type", "scripted", cwd=tmp_path)
    assert done.code == 0, done.stdout
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert [node["message"]["content"] for node in record["nodes"]] == ["-- say 'hi' \U0001f30d"] * 2
    assert record["errors"] == []
