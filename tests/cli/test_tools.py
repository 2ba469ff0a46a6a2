"""`vfx eval` with tool servers, from outside."""

import json
import os
import secrets
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import Process

from tests.support.command import Done, read_lines, run_dir, start_vfx, vfx
from tests.support.processes import descendants, in_groups, is_alive, survivors
from tests.support.provider import scripted_provider

pytestmark = pytest.mark.anyio

ENVIRONMENT = '''
"""Letters, looked up."""

import os
import pathlib
import time

import anyio
import vfx


class Letters(vfx.Toolset):
    """Knows letters."""

    size: int = 3
    """How many it knows."""
    start_seconds: float = 0.0
    """How long its start takes."""
    stop_seconds: float = 0.0
    """How long its end takes."""

    async def start(self) -> None:
        pathlib.Path(os.environ["HOME"], "started").touch()
        await anyio.sleep(self.start_seconds)

    async def stop(self) -> None:
        await anyio.sleep(self.stop_seconds)

    @vfx.tool
    def letter(self, number: int) -> str:
        """One letter."""
        return f"{os.getpid()} {chr(96 + number)}"

    @vfx.tool
    async def leave(self) -> None:
        """Ends the server."""
        print("goodbye")
        os._exit(3)

    @vfx.tool
    async def sleep(self) -> None:
        """Takes long."""
        await anyio.sleep(60)


class Notes(vfx.Toolset):
    """Kept for one rollout."""

    kept: list[str] = []
    """Notes from the start."""

    @vfx.tool
    def keep(self, text: str) -> str:
        """Keeps a text."""
        self.kept.append(text)
        return " ".join(self.kept)


class Ask(vfx.Task):
    toolsets = [Notes]

    @vfx.reward
    def asked(self, trace: vfx.Trace) -> float:
        return len(trace.tool_messages)


class Asks(vfx.Taskset[Ask]):
    """Asks for letters."""

    toolsets = {"letters": Letters}
    number: int = 1
    """How many."""

    def load(self):
        for number in range(self.number):
            yield Ask(prompt=f"question {number}", id=str(number))


class Deaf(vfx.Harness):
    """Has no tools."""

    async def run(self, job):
        return None
'''

LETTERS = "--taskset.tools.letters"
NOTES = "--taskset.task.tools.notes"


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "asks.py"
    path.write_text(ENVIRONMENT)
    return path


def script(*replies: str | dict[str, Any]) -> tuple[str, ...]:
    """Options for a conversation; a mapping calls a tool."""
    texts = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    return ("--client.type", "scripted", "--client.replies", json.dumps(texts))


def use(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


async def dry_run(cwd: Path, *options: str, env: dict[str, str] | None = None) -> Done:
    return await vfx("eval", "./asks.py", "--client.type", "scripted", "--dry-run", *options, cwd=cwd, env=env)


def tool_texts(record: dict[str, Any]) -> list[str]:
    return [node["message"]["content"] for node in record["nodes"] if node["message"]["role"] == "tool"]


# Options


async def test_the_help_of_an_environment_has_its_tool_servers_options(tmp_path: Path, env_file: Path) -> None:
    done = await vfx("eval", env_file, "--help", cwd=tmp_path)
    assert f"{LETTERS}.size\n                            3               How many it knows." in done.stdout
    assert f"{NOTES}.kept" in done.stdout
    assert f"{LETTERS}.start-timeout" in done.stdout


@pytest.mark.usefixtures("env_file")
async def test_options_of_tool_servers_come_from_flags_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[taskset.tools.letters]\nsize = 5\n[taskset.task.tools.notes]\nkept = ["a"]\n')
    env = {"VFX_TASKSET__TOOLS__LETTERS__MAX_RESTARTS": "7"}
    done = await dry_run(tmp_path, "@", "run.toml", f"{LETTERS}.call-timeout", "9", env=env)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "size = 5 # run.toml" in lines
    assert 'kept = ["a"] # run.toml' in lines
    assert "max_restarts = 7 # VFX_TASKSET__TOOLS__LETTERS__MAX_RESTARTS" in lines
    assert f"call_timeout = 9.0 # {LETTERS}.call-timeout" in lines


@pytest.mark.usefixtures("env_file")
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        (f"{LETTERS}.sise", "3", f"did you mean {LETTERS}.size?"),
        ("--taskset.tools.leters.size", "3", f"did you mean {LETTERS}.size?"),
        ("--taskset.tools.leters.start-timeout", "3", "no tool server is called 'leters'"),
        ("--taskset.tools.leters.start-timeout", "3", "did you mean letters?"),
        (f"{NOTES}.url", "localhost:3", "expected the URL of an MCP server"),
        (f"{LETTERS}.size", "many", "expected a whole number"),
        (f"{LETTERS}.colocated", "true", "a server that all rollouts share can't be in the box of one"),
        (f"{NOTES}.max-restarts", "5", "only a shared one is started again"),
        (f"{LETTERS}.headers.X-Key", "a", "headers are for a server that runs elsewhere"),
        ("--taskset.tools.notes.url", "http://localhost", "are both named notes"),
    ],
)
async def test_a_mistake_in_them_names_what_may_have_been_meant(
    tmp_path: Path, option: str, value: str, told: str
) -> None:
    done = await vfx("eval", "./asks.py", "--client.type", "scripted", option, value, cwd=tmp_path)
    assert done.code == 2
    assert told in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.usefixtures("env_file")
async def test_headers_of_a_server_from_outside_are_masked_and_asked_for_again(tmp_path: Path) -> None:
    added = ("--taskset.tools.more.url", "http://u:pw@127.0.0.1:9/mcp?token=abcdef")
    done = await dry_run(tmp_path, *added, "--taskset.tools.more.headers.X-Key", "hush-hush")
    assert 'url = "http://u:***@127.0.0.1:9/mcp?token=***"' in done.stdout
    assert "hush" not in done.stdout
    (tmp_path / "saved.toml").write_text(
        "\n".join(line for line in done.stdout.splitlines() if not line.startswith("#"))
    )
    again = await vfx("eval", "@", "saved.toml", "--dry-run", cwd=tmp_path)
    assert "give it again with --taskset.tools.more.headers.X-Key" in again.stderr
    assert "give it again with --taskset.tools.more.url" in again.stderr


@pytest.mark.usefixtures("env_file")
async def test_a_harness_without_tools_is_refused(tmp_path: Path) -> None:
    done = await vfx("eval", "./asks.py", "--harness.id", "./asks.py", "--client.type", "scripted", cwd=tmp_path)
    assert done.code == 2
    assert "./asks.py can't hand tools to the model, and the environment has tool servers" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.usefixtures("env_file")
@pytest.mark.parametrize(("option", "value", "code"), [("size", "4", 2), ("start-timeout", "40", 0)])
async def test_going_on_with_other_tools_is_refused_and_with_other_bounds_is_not(
    tmp_path: Path, option: str, value: str, code: int
) -> None:
    first = await vfx("eval", "./asks.py", *script("done"), "--taskset.number", "2", "-n", "1", cwd=tmp_path)
    assert first.code == 0, first.stderr
    folder = run_dir(tmp_path)
    done = await vfx("eval", "--resume", folder, "-n", "2", f"{LETTERS}.{option}", value, cwd=tmp_path)
    assert done.code == code, done.stderr
    if code:
        assert f"{LETTERS}.size: was 3 when the run began and is 4 now" in done.stderr


async def test_tasks_with_tools_that_the_taskset_does_not_know_are_refused(tmp_path: Path, env_file: Path) -> None:
    env_file.write_text(ENVIRONMENT.replace("vfx.Taskset[Ask]", "vfx.Taskset"))
    done = await vfx("eval", "./asks.py", "--client.type", "scripted", cwd=tmp_path)
    assert done.code == 2
    assert (
        "Ask has a tool server 'notes' that Asks does not know of (write class Asks(vfx.Taskset[Ask]))" in done.stderr
    )


# Runs


@pytest.mark.usefixtures("env_file")
async def test_all_rollouts_share_one_process_and_keep_their_own_notes(tmp_path: Path) -> None:
    replies = script(use("letter", number=1), use("keep", text="one"), use("keep", text="two"), "done")
    done = await vfx("eval", "./asks.py", *replies, "--taskset.number", "40", "-c", "16", cwd=tmp_path)
    assert done.code == 0, done.stderr
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert len(records) == 40
    shared = {tool_texts(record)[0] for record in records}
    assert len(shared) == 1
    assert {tuple(tool_texts(record)[1:]) for record in records} == {("one", "one two")}
    assert all(record["timing"]["tools"]["end"] for record in records)


@pytest.mark.usefixtures("env_file")
async def test_servers_that_do_not_start_end_the_run_before_any_model_call(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        on = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none")
        slow = (f"{LETTERS}.start-seconds", "60", f"{LETTERS}.start-timeout", "0.5")
        done = await vfx("eval", "./asks.py", *on, *slow, cwd=tmp_path)
        assert provider.requests == []
    assert done.code == 1
    assert "exit        1: tool server 'letters' (Letters) was not ready after 0.5 s (start_timeout)" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("env_file")
async def test_a_server_from_outside_that_does_not_answer_ends_the_run_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        added = ("--taskset.tools.more.url", f"http://127.0.0.1:{silent.getsockname()[1]}/mcp")
        bound = ("--taskset.tools.more.start-timeout", "0.5")
        done = await vfx("eval", "./asks.py", *script("done"), *added, *bound, cwd=tmp_path)
    assert done.code == 1
    assert "tool server 'more' at --taskset.tools.more.url did not answer within 0.5 s" in done.stdout


@pytest.mark.usefixtures("env_file")
async def test_a_death_during_a_call_errs_those_who_had_it_open_and_the_server_comes_back(tmp_path: Path) -> None:
    calls = script(use("leave"), "done")
    done = await vfx("eval", "./asks.py", *calls, "--taskset.number", "4", "-c", "1", cwd=tmp_path)
    assert done.code == 1
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert {record["errors"][0]["kind"] for record in records} == {"toolset"}
    message = "tool server 'letters' died: exit code 3; its last words: goodbye"
    assert {record["errors"][0]["message"] for record in records} == {message}
    assert {record["stop_condition"] for record in records[:3]} == {"toolset_error"}
    assert json.loads((run_dir(tmp_path) / "summary.json").read_text())["tool_server_restarts"] == 2
    log = (run_dir(tmp_path) / "run.log").read_text()
    assert log.count("it is started again") == 2
    assert log.count("it is not started again") == 1


@pytest.mark.usefixtures("env_file")
async def test_an_error_of_a_tool_server_is_tried_again_where_asked(tmp_path: Path) -> None:
    again = ("--retries.on", "toolset", "--retries.max-attempts", "2")
    done = await vfx("eval", "./asks.py", *script(use("leave"), "done"), *again, cwd=tmp_path)
    assert "1 errored" in done.stdout
    assert [line["reason"] for line in read_lines(run_dir(tmp_path) / "attempts.jsonl")] == ["retried"]


# Whoever asks from outside


@asynccontextmanager
async def asleep(cwd: Path, mark: str) -> AsyncGenerator[tuple[Process, dict[str, Any]]]:
    """A run whose rollout waits for a tool; with what `ss` knows of its listeners."""
    process = await start_vfx("eval", "./asks.py", *script(use("sleep")), cwd=cwd, env={"MARK": mark})
    try:
        with anyio.fail_after(20):
            while len(ports := _listeners(process.pid)) < 3:
                await anyio.sleep(0.05)
        yield process, {"ports": ports}
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGINT)
        async with process:
            with anyio.fail_after(10):
                await process.wait()


def _listeners(pid: int) -> set[tuple[str, int]]:
    """Address and port of each listener of a process and those below it."""
    inodes: set[str] = set()
    for each in (pid, *descendants(pid)):
        for entry in Path(f"/proc/{each}/fd").glob("*"):
            try:
                inodes.add(os.readlink(entry))
            except OSError:
                continue
    found: set[tuple[str, int]] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            address, _, port = fields[1].partition(":")
            found.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


@pytest.mark.usefixtures("env_file")
async def test_no_server_answers_whom_it_does_not_know(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with asleep(tmp_path, mark) as (_, seen), httpx.AsyncClient(timeout=5) as http:
        assert {address for address, _ in seen["ports"]} == {"127.0.0.1"}
        answers: list[tuple[int, str]] = []
        for _, port in seen["ports"]:
            base = f"http://127.0.0.1:{port}"
            if (await http.get(f"{base}/v1/models")).status_code == 401:
                continue  # The interception, which has tests of its own.
            for url in (f"{base}/mcp", f"{base}/mcp?rollout=", f"{base}/mcp?rollout={secrets.token_urlsafe(24)}"):
                response = await http.post(url, json=listing)
                answers.append((response.status_code, response.text))
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                assert (await http.post(f"{base}/mcp", json=listing, headers=headers)).status_code == 403
            assert (await http.put(f"{base}/rollouts/x", json={})).status_code == 401
            assert (await http.get(f"{base}/")).status_code == 404
            assert (await http.get(f"{base}/mcp")).status_code == 405
            health = await http.get(f"{base}/health")
            assert (health.status_code, health.json()) == (200, {"status": "ok"})
            assert "server" not in health.headers
        assert len(answers) == 6
        assert len(set(answers)) == 1
        assert answers[0][0] == 401


# Ends


PHASES = {"starting": (f"{LETTERS}.start-seconds", "60"), "running": ()}


@pytest.mark.usefixtures("env_file")
@pytest.mark.parametrize("how", ["once", "twice", "killed"])
@pytest.mark.parametrize("phase", PHASES)
async def test_nothing_is_left_of_an_interrupted_run(tmp_path: Path, phase: str, how: str) -> None:
    mark = secrets.token_hex(8)
    replies = script(use("sleep"))
    options = (*replies, *PHASES[phase], "--taskset.number", "3")
    process = await start_vfx("eval", "./asks.py", *options, cwd=tmp_path, env={"MARK": mark})
    async with process:
        # The keeper; the host and the server, each below a supervisor; and the same for each rollout.
        expected = 5 if phase == "starting" else 7 + 3 * 2
        with anyio.fail_after(30):
            while len(groups := descendants(process.pid)) < expected:
                await anyio.sleep(0.02)
        for _ in range({"once": 1, "twice": 2, "killed": 1}[how]):
            os.kill(process.pid, signal.SIGKILL if how == "killed" else signal.SIGINT)
            await anyio.sleep(0.02)
        with anyio.fail_after(12):
            assert await process.wait() == (-9 if how == "killed" else 130)
            while any(map(is_alive, groups)):
                await anyio.sleep(0.02)
    assert survivors(mark) == []
    assert in_groups(groups) == []


@pytest.mark.usefixtures("env_file")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
async def test_an_end_that_takes_long_is_cut_short(tmp_path: Path, signum: int) -> None:
    mark = secrets.token_hex(8)
    options = (*script(use("sleep")), f"{LETTERS}.stop-seconds", "60")
    process = await start_vfx("eval", "./asks.py", *options, cwd=tmp_path, env={"MARK": mark})
    async with process:
        with anyio.fail_after(30):
            while len(groups := descendants(process.pid)) < 9:
                await anyio.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        await anyio.sleep(0.5)
        assert process.returncode is None
        os.kill(process.pid, signum)
        with anyio.fail_after(4):
            assert await process.wait() == (130 if signum == signal.SIGINT else -9)
            while any(map(is_alive, groups)):
                await anyio.sleep(0.02)
    assert survivors(mark) == []


@pytest.mark.usefixtures("env_file")
async def test_runs_at_the_same_time_do_not_meet_each_others_servers(tmp_path: Path) -> None:
    """While something keeps taking ports from under them."""
    codes: list[int] = []
    mixed: list[str] = []

    async def run(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        own = (f"{NOTES}.kept", json.dumps([name]))
        text = script(use("keep", text="x"), use("letter", number=1), "done")
        done = await vfx("eval", "../asks.py", *text, *own, "--taskset.number", "4", cwd=folder)
        codes.append(done.code)
        for record in read_lines(run_dir(folder) / "traces.jsonl"):
            mixed.extend(set(tool_texts(record)[:1]) - {f"{name} x"})

    async with anyio.create_task_group() as group:
        group.start_soon(_grab_ports)
        async with anyio.create_task_group() as runs:
            for number in range(3):
                runs.start_soon(run, f"run-{number}")
        group.cancel_scope.cancel()
    assert (codes, mixed) == ([0, 0, 0], [])


async def _grab_ports() -> None:
    while True:
        with ExitStack() as held:
            for _ in range(50):
                held.enter_context(socket.create_server(("127.0.0.1", 0)))
            await anyio.sleep(0.01)
