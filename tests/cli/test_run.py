"""`vfx eval` from outside: a real process, a real provider on loopback, the files it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.command import read_lines, run_dir, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider, stream

pytestmark = pytest.mark.anyio


def on(provider: Provider) -> tuple[str, ...]:
    """Options for a run on a provider without a key."""
    return ("-m", "test-model", "--client.base-url", provider.base_url, "--client.api-key-var", "none")


async def test_scripted_run_is_scored_and_leaves_its_folder(tmp_path: Path) -> None:
    done = await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "5", "-r", "2", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "10 planned  10 scored  0 errored" in done.stdout
    folder = run_dir(tmp_path)
    records = read_lines(folder / "traces.jsonl")
    assert len({(record["task"]["key"], record["rollout"]) for record in records}) == 10
    assert {record["num_turns"] for record in records} == {1}
    assert json.loads((folder / "summary.json").read_text())["scored"] == 10
    assert read_lines(folder / "attempts.jsonl") == []


async def test_json_is_alone_on_stdout(tmp_path: Path) -> None:
    done = await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", "--json", cwd=tmp_path)
    assert done.json["scored"] == 2
    assert done.json["exit_code"] == done.code == 0


async def test_the_model_is_asked_for_what_was_configured(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        sampling = ("--sampling.temperature", "0.5", "--sampling.extra.top_k", "40", "--sampling.stop", "X")
        done = await vfx("eval", "reverse-text", *on(provider), *sampling, "-n", "1", cwd=tmp_path)
    assert done.code == 0, done.stderr
    [request] = provider.requests
    body = request.json()
    assert {name: body[name] for name in ("model", "temperature", "top_k", "stop")} == {
        "model": "test-model",
        "temperature": 0.5,
        "top_k": 40,
        "stop": ["X"],
    }
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    [call] = read_lines(run_dir(tmp_path) / "traces.jsonl")[0]["calls"]
    assert call["sampling"]["top_k"] == 40


ENVIRONMENT = """
import anyio
import openai
import vfx

class Word(vfx.Task):
    answer: str

    @vfx.reward
    def right(self, trace: vfx.Trace) -> float:
        if self.id == "slow-to-score":
            import time; time.sleep(30)
        return float(self.answer in trace.last_reply)

    @vfx.stop
    def said_stop(self, trace: vfx.Trace) -> bool:
        return "stop" in trace.last_reply

class Words(vfx.Taskset[Word]):
    ids: tuple[str, ...] = tuple("0123456789")

    def load(self):
        for id in self.ids:
            yield Word(prompt=f"task {id}", answer="yes", id=id)

class Talker(vfx.Harness):
    turns: int = 3
    stream: bool = False

    async def run(self, job):
        client = openai.AsyncOpenAI(base_url=job.endpoint.base_url, api_key=job.endpoint.api_key, max_retries=0)
        messages = [{"role": "user", "content": job.prompt}]
        async with client:
            for _ in range(self.turns):
                if self.stream:
                    chunks = await client.chat.completions.create(model="x", messages=messages, stream=True)
                    parts = [c.choices[0].delta.content or "" async for c in chunks if c.choices]
                    text = "".join(parts)
                else:
                    reply = await client.chat.completions.create(model="x", messages=messages)
                    text = reply.choices[0].message.content
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
"""


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "words.py"
    path.write_text(ENVIRONMENT)
    return path


async def test_an_environment_is_run_by_its_path(tmp_path: Path, env_file: Path) -> None:
    async with scripted_provider(default=completion("yes")) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "--taskset.ids", '["a", "b"]', cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "reward      1.000" in done.stdout
    assert run_dir(tmp_path).parent.name == "words--test-model--chat"


@pytest.mark.parametrize("stream_option", ["--no-stream", "--stream"])
async def test_a_harness_with_the_openai_sdk_records_every_turn(
    tmp_path: Path, env_file: Path, stream_option: str
) -> None:
    default = stream("ye", "s") if stream_option == "--stream" else completion("yes")
    option = "--harness." + stream_option.removeprefix("--")
    async with scripted_provider(default=default) as provider:
        done = await vfx(
            "eval", "./words.py", *on(provider), "--harness.id", "./words.py", option, "-n", "4", cwd=tmp_path
        )
    assert done.code == 0, done.stderr
    for record in read_lines(run_dir(tmp_path) / "traces.jsonl"):
        assert record["num_turns"] == 3
        assert [node["sampled"] for node in record["nodes"]] == [False, True] * 3
        assert record["usage"]["output_tokens"] == 9
        assert record["reward"] == 1.0


async def test_a_limit_ends_the_rollout_cleanly(tmp_path: Path, env_file: Path) -> None:
    async with scripted_provider(default=completion("yes")) as provider:
        options = ("--harness.id", "./words.py", "--max-turns", "2", "-n", "3")
        done = await vfx("eval", "./words.py", *on(provider), *options, cwd=tmp_path)
    assert done.code == 0, done.stderr
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert {(r["num_turns"], r["stop_condition"], r["reward"]) for r in records} == {(2, "max_turns", 1.0)}
    assert len(provider.requests) == 6


async def test_a_stop_condition_ends_the_rollout_cleanly(tmp_path: Path, env_file: Path) -> None:
    async with scripted_provider(default=completion("yes, stop")) as provider:
        options = ("--harness.id", "./words.py", "-n", "1")
        done = await vfx("eval", "./words.py", *on(provider), *options, cwd=tmp_path)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["num_turns"], record["stop_condition"]) == (1, "said_stop")


async def test_both_means_are_shown_and_errored_rollouts_have_no_reward(tmp_path: Path, env_file: Path) -> None:
    def answer(request: Request) -> Reply:
        text = request.json()["messages"][0]["content"]
        number = int(text.removeprefix("task ")) if text != "task slow-to-score" else 9
        if number in (7, 8):
            return Reply(400, body=b'{"error": {"message": "no"}}')
        return completion("no" if number == 6 else "yes")

    ids = json.dumps([*"012345678", "slow-to-score"])
    async with scripted_provider(default=answer) as provider:
        options = ("--taskset.ids", ids, "--timeout.scoring", "1")
        done = await vfx("eval", "./words.py", *on(provider), *options, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "10 planned  7 scored  3 errored" in done.stdout
    assert "0.857" in done.stdout
    assert "0.600  mean with 3 errored as 0" in done.stdout
    assert "2 x provider: " in done.stdout
    assert "1 x scoring: " in done.stdout
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert (summary["scored"], summary["errored"], summary["errors"]) == (7, 3, {"provider": 2, "scoring": 1})
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert [record["reward"] for record in records if record["errors"]] == [None] * 3


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, ("401", "127.0.0.1", "test-model", "SOME_KEY")), (403, ("403",)), (404, ("404", "test-model"))],
)
async def test_what_fails_every_rollout_ends_the_run_early(
    tmp_path: Path, status: int, expected: tuple[str, ...]
) -> None:
    body = json.dumps({"error": {"message": "not with this key"}}).encode()
    async with scripted_provider(default=Reply(status, body=body)) as provider:
        options = ("-m", "test-model", "--client.base-url", provider.base_url, "--client.api-key-var", "SOME_KEY")
        done = await vfx(
            *("eval", "arithmetic", "--taskset.size", "200", "-c", "16", *options),
            cwd=tmp_path,
            env={"SOME_KEY": "sk-secret-value"},
        )
    assert done.code == 1
    assert len(provider.requests) <= 32
    assert all(word in done.stdout for word in expected), done.stdout
    assert "sk-secret-value" not in done.stdout + done.stderr
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) <= 32


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
async def test_an_endpoint_that_is_not_there_ends_the_run_early(tmp_path: Path, url: str) -> None:
    options = ("-m", "m", "--client.base-url", url, "--client.api-key-var", "none", "--taskset.size", "200")
    done = await vfx("eval", "arithmetic", *options, cwd=tmp_path)
    assert done.code == 1
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) <= 40
    assert "stopped after" in done.stdout


async def test_one_refusal_among_successes_does_not_stop_the_run(tmp_path: Path, env_file: Path) -> None:
    async with scripted_provider(completion("yes"), Reply(401), default=completion("yes")) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "-c", "1", cwd=tmp_path)
    assert done.code == 0, done.stdout
    assert "9 scored  1 errored" in done.stdout


async def test_too_many_errors_fail_the_run(tmp_path: Path, env_file: Path) -> None:
    replies = [Reply(400) if number % 2 else completion("yes") for number in range(10)]
    async with scripted_provider(*replies) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "--max-error-share", "0.4", cwd=tmp_path)
    assert done.code == 1
    assert "50% of the rollouts are errored, more than --max-error-share 0.4" in done.stdout


async def test_nothing_scored_is_never_a_success(tmp_path: Path, env_file: Path) -> None:
    async with scripted_provider(default=Reply(400)) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "--max-error-share", "1", cwd=tmp_path)
    assert done.code == 1
    assert "nothing was scored" in done.stdout
    assert "reward      none" in done.stdout


@pytest.mark.parametrize(("bound", "code"), [("0.5", 0), ("1.5", 3)])
async def test_a_mean_below_the_gate_has_its_own_code(tmp_path: Path, env_file: Path, bound: str, code: int) -> None:
    async with scripted_provider(default=completion("yes")) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "--fail-under", bound, cwd=tmp_path)
    assert done.code == code


async def test_a_missing_key_is_a_mistake_before_anything_starts(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        done = await vfx("eval", "arithmetic", "-m", "m", "--client.base-url", provider.base_url, cwd=tmp_path)
    assert done.code == 2
    assert "OPENAI_API_KEY" in done.stderr
    assert not (tmp_path / "outputs").exists()
    assert provider.requests == []


async def test_failed_rollouts_are_tried_again_by_kind(tmp_path: Path, env_file: Path) -> None:
    replies = [Reply(400), completion("yes")]
    async with scripted_provider(*replies) as provider:
        options = ("--retries.max-attempts", "2", "-n", "1", "--json")
        done = await vfx("eval", "./words.py", *on(provider), *options, cwd=tmp_path)
    assert (done.code, done.json["scored"], done.json["retried"]) == (0, 1, 1)
    folder = run_dir(tmp_path)
    assert [record["attempt"] for record in read_lines(folder / "traces.jsonl")] == [1]
    assert [record["reason"] for record in read_lines(folder / "attempts.jsonl")] == ["retried"]


async def test_elastic_servers_grow_with_the_rollouts_and_are_gone_afterwards(tmp_path: Path) -> None:
    options = ("--interception.type", "elastic", "--interception.multiplex", "4", "-n", "20", "-r", "4", "-c", "64")
    done = await vfx(
        *("eval", "arithmetic", "--client.type", "scripted", "--client.latency", "0.5", *options, "--json"),
        cwd=tmp_path,
    )
    assert (done.code, done.json["scored"]) == (0, 80)
    assert (done.json["peak_servers"], done.json["servers_left"]) == (16, 0)


GROWING = """
import httpx
import vfx

class Growing(vfx.Harness):
    \"\"\"Asks with ever more text, and takes a refusal for the end.\"\"\"
    sizes: tuple[int, ...] = (10, 5000)

    async def run(self, job):
        key = {"Authorization": f"Bearer {job.endpoint.api_key}"}
        async with httpx.AsyncClient(trust_env=False, headers=key) as http:
            for size in self.sizes:
                body = {"model": "x", "messages": [{"role": "user", "content": "x" * size}]}
                await http.post(f"{job.endpoint.base_url}/chat/completions", json=body)
"""


@pytest.mark.parametrize(("sizes", "code"), [("[10, 5000]", 1), ("[10, 5000, 20]", 0)])
async def test_a_request_beyond_the_bound_fails_the_rollout_unless_a_later_one_succeeds(
    tmp_path: Path, sizes: str, code: int
) -> None:
    """B08: also of a program that ends as if nothing had happened."""
    (tmp_path / "growing.py").write_text(GROWING)
    options = ("--client.type", "scripted", "-n", "1", "--interception.max-body-bytes", "1000")
    harness = ("--harness.id", "./growing.py", "--harness.sizes", sizes)
    done = await vfx("eval", "arithmetic", *options, *harness, cwd=tmp_path)
    assert done.code == code, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    [call] = [call for call in record["calls"] if call["error"]]
    assert "more than 1000 bytes (--interception.max-body-bytes)" in call["error"]["message"]
    assert [error["message"] for error in record["errors"]] == [call["error"]["message"]] * code
    assert record["stop_condition"] == ("interception_error" if code else None)


@pytest.mark.parametrize("kind", ["server", "static", "elastic"])
async def test_every_shape_of_the_interception_gives_the_same_result(tmp_path: Path, kind: str) -> None:
    options = ("--client.type", "scripted", "--interception.type", kind, "--json", "-n", "6")
    done = await vfx("eval", "arithmetic", *options, cwd=tmp_path)
    assert (done.code, done.json["scored"], done.json["servers_left"]) == (0, 6, 0)


async def test_output_is_plain_and_survives_a_closed_reader(tmp_path: Path) -> None:
    command = f"{sys.executable} -m vfx eval arithmetic --client.type scripted 2>&1 | head -1"
    done = await anyio.run_process(["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert b"\x1b" not in done.stdout
    assert b"Traceback" not in done.stdout
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) == 20


async def test_a_used_folder_is_refused_and_replaced_on_request(tmp_path: Path) -> None:
    command = ("eval", "arithmetic", "--client.type", "scripted", "-n", "1", "--name", "mine")
    assert (await vfx(*command, cwd=tmp_path)).code == 0
    again = await vfx(*command, cwd=tmp_path)
    assert again.code == 2
    assert "--replace" in again.stderr
    assert (await vfx(*command, "--replace", cwd=tmp_path)).code == 0


async def test_silence_of_the_provider_ends_the_call_and_not_the_run(tmp_path: Path, env_file: Path) -> None:
    def answer(request: Request) -> Reply:
        is_stalled = request.json()["messages"][0]["content"] == "task 3"
        return Reply(None, ending="hang") if is_stalled else completion("yes")

    async with scripted_provider(default=answer) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "--client.idle-timeout", "1", cwd=tmp_path)
    assert done.code == 0, done.stdout
    assert "9 scored  1 errored" in done.stdout
    assert "provider idle timeout" in done.stdout


async def test_rate_limits_are_waited_for_and_recorded(tmp_path: Path, env_file: Path) -> None:
    busy = Reply(429, headers={"Retry-After": "1"}, body=b"{}")
    async with scripted_provider(busy, default=completion("yes")) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "-n", "1", cwd=tmp_path)
    assert done.code == 0, done.stdout
    first, second = provider.requests
    assert second.arrived - first.arrived >= 1.0
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    [call] = record["calls"]
    assert call["attempts"] == 2
    assert call["waited"] >= 1.0


async def test_a_wait_above_the_maximum_fails_the_rollout(tmp_path: Path, env_file: Path) -> None:
    busy = Reply(429, headers={"Retry-After": "16000"}, body=b"{}")
    async with scripted_provider(default=busy) as provider:
        done = await vfx("eval", "./words.py", *on(provider), "-n", "1", cwd=tmp_path)
    assert done.code == 1
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert "16000" in record["errors"][0]["message"]
    assert record["errors"][0]["kind"] == "provider"


SECRETS = {"S1": "key-one-secret", "S2": "header-two-secret", "S3": "team-three", "S4": "query-four", "S5": "user-five"}


async def test_no_secret_is_stored_or_shown(tmp_path: Path, env_file: Path) -> None:
    def repeat(request: Request) -> Reply:
        error: dict[str, Any] = {"error": {"message": f"bad request {dict(request.headers)} {request.path}"}}
        return Reply(400, body=json.dumps(error).encode())

    async with scripted_provider(default=repeat) as provider:
        url = provider.base_url.replace("http://", f"http://user:{SECRETS['S5']}@") + f"?key={SECRETS['S4']}"
        config = tmp_path / "c.toml"
        config.write_text(
            f'[client]\nbase_url = "{url}"\napi_key_var = "MY_KEY"\n'
            f'[client.headers]\nX-Auth = "Bearer {SECRETS["S2"]}"\nX-Team = "{SECRETS["S3"]}"\n'
        )
        options = ("-m", "m", "--log-level", "debug", "-n", "4")
        done = await vfx(*("eval", "./words.py", "@", "c.toml", *options), cwd=tmp_path, env={"MY_KEY": SECRETS["S1"]})
    assert done.code == 1
    assert provider.requests[0].headers["x-team"] == SECRETS["S3"]
    written = done.stdout + done.stderr + "".join(p.read_text() for p in run_dir(tmp_path).iterdir() if p.is_file())
    assert [name for name, secret in SECRETS.items() if secret in written] == []
    assert "MY_KEY" in (run_dir(tmp_path) / "config.toml").read_text()


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import sys, vfx; print(sorted({'pydantic', 'anyio', 'aiohttp', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
