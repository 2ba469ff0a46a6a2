"""Runs that go on after a crash, a kill, a signal or a change of mind: nothing lost, doubled, torn or paid twice."""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.command import Done, read_lines, run_dir, start_vfx, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio

MOMENTS = 20
# From the first line of the program past the end of the run below.
LONGEST_S = 1.6


def on(provider: Provider) -> tuple[str, ...]:
    """Options for a run on a provider without a key."""
    return ("-m", "test-model", "--client.base-url", provider.base_url, "--client.api-key-var", "none")


def lines(folder: Path) -> list[bytes]:
    *whole, rest = (folder / "traces.jsonl").read_bytes().split(b"\n")
    assert rest == b""
    return whole


def identities(folder: Path) -> list[tuple[Any, ...]]:
    return [(r["task"]["key"], r["task"]["occurrence"], r["rollout"]) for r in read_lines(folder / "traces.jsonl")]


async def resume(folder: Path, *options: str, env: dict[str, str] | None = None) -> Done:
    return await vfx("eval", "--resume", folder, *options, cwd=folder.parents[2], env=env)


async def kill_at(process: Any, moment: float) -> None:
    with anyio.move_on_after(moment):
        await process.wait()
    if process.returncode is None:
        os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await process.aclose()


@pytest.mark.parametrize("number", range(MOMENTS))
async def test_killed_at_a_random_moment_and_again_in_the_resume(tmp_path: Path, number: int) -> None:
    draw = random.Random(number)
    async with scripted_provider(default=completion("7", delay=0.05)) as provider:
        options = (*on(provider), "-n", "12", "-c", "3")
        await kill_at(await start_vfx("eval", "arithmetic", *options, cwd=tmp_path), draw.uniform(0.2, LONGEST_S))
        if not list(tmp_path.glob("outputs/*/*/config.toml")):
            # Nothing had been started, so there is nothing to go on with.
            assert provider.requests == []
            return
        folder = run_dir(tmp_path)
        *whole, _torn = (folder / "traces.jsonl").read_bytes().split(b"\n")
        await kill_at(await start_vfx("eval", "--resume", folder, cwd=tmp_path), draw.uniform(0.2, 1.0))
        done = await resume(folder, "--json")
    assert done.code == 0, done.stderr
    assert lines(folder)[: len(whole)] == whole
    assert len(set(identities(folder))) == len(identities(folder)) == 12
    assert done.json["scored"] == done.json["planned"] == 12
    # What was in flight at the two kills, at most three each time, is all that is asked for again.
    assert 12 <= len(provider.requests) <= 18


async def test_of_two_resumes_at_once_one_is_refused(tmp_path: Path) -> None:
    done = await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", cwd=tmp_path)
    folder = run_dir(tmp_path)
    results: list[Done] = []

    async def extend() -> None:
        results.append(await resume(folder, "-n", "8", "-c", "2", "--client.latency", "0.4"))

    async with anyio.create_task_group() as group:
        group.start_soon(extend)
        group.start_soon(extend)
    refused, done = sorted(results, key=lambda result: -result.code)
    assert (refused.code, done.code) == (2, 0), [result.stderr for result in results]
    assert "another process is writing to it" in refused.stderr
    assert len(identities(folder)) == 8


SEPARATORS = "a\u0085b\u2028c\u2029d\u000be\u000cf\u001cg\u001dh\u001ei"


async def test_text_that_other_readers_take_for_line_ends_is_whole(tmp_path: Path) -> None:
    async with scripted_provider(default=completion(SEPARATORS)) as provider:
        done = await vfx("eval", "arithmetic", *on(provider), "-n", "4", cwd=tmp_path)
        folder = run_dir(tmp_path)
        path = folder / "traces.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines(folder)[:2]))
        assert len(provider.requests) == 4
        done = await resume(folder)
        assert len(provider.requests) == 6
    assert done.code == 0, done.stderr
    assert "corrupt" not in done.stderr
    assert "no record" not in done.stderr
    records = read_lines(path)
    assert [record["nodes"][-1]["message"]["content"] for record in records] == [SEPARATORS] * 4


async def test_a_torn_last_line_is_owed_again_and_never_appended_to(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        await vfx("eval", "arithmetic", *on(provider), "-n", "4", "-c", "1", cwd=tmp_path)
    folder = run_dir(tmp_path)
    path = folder / "traces.jsonl"
    kept = lines(folder)[:3]
    torn = path.read_bytes()[:-40]
    path.write_bytes(torn)

    def answer(_: Request) -> Reply:
        return completion() if len(provider.requests) == 1 else Reply(None, ending="hang")

    async with scripted_provider(default=answer) as provider:
        process = await start_vfx(
            *("eval", "--resume", folder, "-n", "6", "-c", "1", "--client.base-url", provider.base_url), cwd=tmp_path
        )
        with anyio.fail_after(30):
            await provider.arrived(2)
        await kill_at(process, 0)
        first = len(provider.requests)
    assert len(lines(folder)) == 4
    async with scripted_provider() as provider:
        done = await resume(folder, "-n", "6", "--client.base-url", provider.base_url)
        # The one that was in flight at the kill is paid for again.
        assert first + len(provider.requests) == 4
    assert done.code == 0, done.stderr
    assert lines(folder)[:3] == kept
    assert len(set(identities(folder))) == len(lines(folder)) == 6
    assert (folder / "traces.torn").read_bytes() == torn.rpartition(b"\n")[2] + b"\n"


async def test_without_its_configuration_a_run_is_left_alone(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", cwd=tmp_path)
    folder = run_dir(tmp_path)
    (folder / "config.toml").unlink()
    path = folder / "traces.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    before = path.read_bytes()
    done = await resume(folder)
    assert done.code == 2
    assert "config.toml" in done.stderr
    assert path.read_bytes() == before


async def test_a_line_that_is_no_record_is_named_and_nothing_changed(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "3", cwd=tmp_path)
    folder = run_dir(tmp_path)
    path = folder / "traces.jsonl"
    first, second, third = lines(folder)
    path.write_bytes(first + b"\n" + second[:-30] + b"\n" + third + b"\n" + first[:50])
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = await resume(folder)
    assert done.code == 2
    assert "traces.jsonl: line 2 is no record" in done.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


async def test_what_bears_on_results_may_not_differ(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", "--max-turns", "3", cwd=tmp_path)
    folder = run_dir(tmp_path)
    before = (folder / "traces.jsonl").read_bytes()
    changes = ("-m", "other", "--taskset.digits", "2", "--sampling.temperature", "1", "--seed", "5", "--max-turns", "4")
    done = await resume(folder, *changes)
    assert done.code == 2
    assert "5 mistakes" in done.stderr
    assert '--model: was "scripted" when the run began and is "other" now' in done.stderr
    assert "--taskset.digits: was 1 when the run began and is 2 now" in done.stderr
    assert "--sampling.temperature: was unset when the run began and is 1.0 now" in done.stderr
    assert "--seed: was 0 when" in done.stderr
    assert "--max-turns: was 3 when" in done.stderr
    assert (folder / "traces.jsonl").read_bytes() == before


async def test_a_system_prompt_file_may_not_hold_something_else(tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("Be brief.\n")
    options = ("--client.type", "scripted", "-n", "1", "--taskset.system-prompt-file", "system.txt")
    await vfx("eval", "arithmetic", *options, cwd=tmp_path)
    folder = run_dir(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before["system_prompt.txt"] == b"Be brief.\n"
    file.write_text("Be long.\n")
    done = await resume(folder, "-n", "2")
    assert done.code == 2
    assert "--taskset.system-prompt-file: system.txt has changed since the run began" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    file.write_text("Be brief.\n")
    assert (await resume(folder, "-n", "2")).code == 0
    assert len(lines(folder)) == 2


async def test_another_environment_is_refused_by_its_name(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", cwd=tmp_path)
    done = await vfx("eval", "reverse-text", "--resume", run_dir(tmp_path), cwd=tmp_path)
    assert done.code == 2
    assert "1 mistake:" in done.stderr
    assert '--taskset.id: was "arithmetic" when the run began and is "reverse-text" now' in done.stderr


async def test_operational_options_may_differ(tmp_path: Path) -> None:
    await vfx(
        "eval", "arithmetic", "--client.type", "scripted", "-n", "2", "--interception.multiplex", "4", cwd=tmp_path
    )
    folder = run_dir(tmp_path)
    options = ("-c", "3", "--interception.type", "server", "--retries.max-attempts", "2", "--log-level", "debug")
    done = await resume(folder, "-n", "3", *options, "--timeout.total", "60", "--max-error-share", "1", "--json")
    assert done.code == 0, done.stderr
    assert done.json["scored"] == 3
    assert (folder / "run.log").read_text().count("exit code 0") == 2


async def test_more_tasks_and_rollouts_extend_a_run_and_fewer_delete_nothing(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        await vfx("eval", "arithmetic", *on(provider), "-n", "3", "--shuffle", cwd=tmp_path)
        folder = run_dir(tmp_path)
        first = lines(folder)
        done = await resume(folder, "-n", "4", "-r", "2", "--json")
        assert len(provider.requests) == 8
        assert done.json["scored"] == done.json["planned"] == 8
        done = await resume(folder, "-n", "1", "-r", "1", "--json")
        assert len(provider.requests) == 8
    assert done.json["scored"] == done.json["planned"] == 8
    assert lines(folder)[:3] == first
    assert len(set(identities(folder))) == 8


EQUAL = """
import vfx

class Env(vfx.Taskset):
    def load(self):
        for text in ("same", "same", "half \\ud835 a pair", "same", "half \\ud835 a pair"):
            yield Echo(prompt=text)

class Echo(vfx.Task):
    @vfx.reward
    def said(self, trace: vfx.Trace) -> float:
        return float(bool(trace.last_reply))
"""


async def test_equal_tasks_and_half_characters_are_found_again(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(EQUAL)
    async with scripted_provider(default=completion("a \ud835 b")) as provider:
        done = await vfx("eval", "./env.py", *on(provider), "-r", "2", cwd=tmp_path)
        assert done.code == 0, done.stderr
        folder = run_dir(tmp_path)
        path = folder / "traces.jsonl"
        kept = lines(folder)[1::2]
        path.write_bytes(b"".join(line + b"\n" for line in kept))
        done = await resume(folder, "--json")
        assert len(provider.requests) == 15
    assert done.code == 0, done.stderr
    assert done.json["scored"] == len(set(identities(folder))) == len(lines(folder)) == 10
    assert lines(folder)[:5] == kept
    path.read_text("utf-8")
    contents = {record["nodes"][-1]["message"]["content"] for record in read_lines(path)}
    assert contents == {"a \ud835 b"}


async def test_after_an_interrupt_exactly_the_unfinished_ones_run(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return completion("7") if len(provider.requests) <= 3 else Reply(None, ending="hang")

    async with scripted_provider(default=answer) as provider:
        process = await start_vfx("eval", "arithmetic", *on(provider), "-c", "4", "-n", "9", cwd=tmp_path)
        with anyio.fail_after(30):
            await provider.arrived(7)
        os.kill(process.pid, signal.SIGINT)
        with anyio.fail_after(30):
            assert await process.wait() == 130
        await process.aclose()
    folder = run_dir(tmp_path)
    assert len(lines(folder)) == 3
    async with scripted_provider(default=completion("7")) as provider:
        done = await resume(folder, "--client.base-url", provider.base_url, "--json")
        assert len(provider.requests) == 6
    assert done.code == 0, done.stderr
    assert (done.json["scored"], done.json["interrupted"]) == (9, 0)
    assert [record["reason"] for record in read_lines(folder / "attempts.jsonl")] == ["interrupted"] * 4


async def test_after_a_wrong_key_everything_runs(tmp_path: Path) -> None:
    refusal = Reply(401, body=b'{"error": {"message": "no such key"}}')

    def answer(request: Request) -> Reply:
        return completion() if request.headers["authorization"] == "Bearer right-key" else refusal

    async with scripted_provider(default=answer) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--taskset.size", "200", "--taskset.digits", "3")
        done = await vfx("eval", "arithmetic", *options, "-c", "16", cwd=tmp_path, env={"OPENAI_API_KEY": "wrong-key"})
        assert done.code == 1
        assert len(provider.requests) <= 32
        wrong = len(provider.requests)
        folder = run_dir(tmp_path)
        errored = lines(folder)
        assert 0 < len(errored) < 32
        done = await resume(folder, "--json", env={"OPENAI_API_KEY": "right-key"})
        assert len(provider.requests) == wrong + 200
    assert done.code == 0, done.stderr
    assert (done.json["scored"], done.json["errored"]) == (200, 0)
    assert len(set(identities(folder))) == len(lines(folder)) == 200
    redone = [record for record in read_lines(folder / "attempts.jsonl") if record["reason"] == "redone"]
    assert len(redone) == len(errored)


async def test_a_header_that_was_masked_is_asked_for_again(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        header = ("--client.headers.X-Team", "blue-team")
        await vfx("eval", "arithmetic", *on(provider), *header, "-n", "1", cwd=tmp_path)
        folder = run_dir(tmp_path)
        done = await resume(folder, "-n", "2")
        assert done.code == 2
        assert "give it again with --client.headers.X-Team" in done.stderr
        done = await resume(folder, "-n", "2", *header)
    assert done.code == 0, done.stderr
    assert provider.requests[-1].headers["x-team"] == "blue-team"
    assert "blue-team" not in (folder / "config.toml").read_text()


async def test_a_finished_run_starts_nothing(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        await vfx("eval", "arithmetic", *on(provider), "-n", "2", cwd=tmp_path)
        done = await resume(run_dir(tmp_path))
        assert len(provider.requests) == 2
    assert done.code == 0, done.stderr
    assert "2 planned  2 scored" in done.stdout


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--resume",), "--resume: expected the folder of a run after it"),
        (("--resume", "nowhere"), "nowhere: it holds no config.toml, so it is no run folder"),
    ],
)
async def test_what_can_not_be_resumed_is_a_mistake(tmp_path: Path, argv: tuple[str, ...], expected: str) -> None:
    done = await vfx("eval", *argv, cwd=tmp_path)
    assert done.code == 2
    assert expected in done.stderr


async def test_a_run_goes_on_or_is_removed(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "1", cwd=tmp_path)
    done = await resume(run_dir(tmp_path), "--replace")
    assert done.code == 2
    assert "--replace: can't go with --resume" in done.stderr


GROUP = """
import vfx

class Race(vfx.Task):
    @vfx.reward
    def alone(self, trace: vfx.Trace) -> float:
        return 1.0

    @vfx.group_reward
    def longest(self, traces: list[vfx.Trace]) -> list[float]:
        return [float(len(traces))] * len(traces)

class Races(vfx.Taskset):
    def load(self):
        for number in range(2):
            yield Race(prompt=f"race {number}")
"""


async def test_a_group_is_scored_when_all_have_ended(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(GROUP)
    async with scripted_provider() as provider:
        done = await vfx("eval", "./env.py", *on(provider), "-r", "3", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    folder = run_dir(tmp_path)
    assert {record["rewards"]["longest"]["score"] for record in read_lines(folder / "traces.jsonl")} == {3.0}
    assert done.json["reward"]["mean"] == 4.0
    assert {record["reason"] for record in read_lines(folder / "attempts.jsonl")} == {"pending"}


async def test_an_interrupted_group_is_completed_and_scored_together(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(GROUP)

    def answer(_: Request) -> Reply:
        return completion() if len(provider.requests) <= 4 else Reply(None, ending="hang")

    async with scripted_provider(default=answer) as provider:
        process = await start_vfx("eval", "./env.py", *on(provider), "-r", "3", "-c", "1", cwd=tmp_path)
        with anyio.fail_after(30):
            await provider.arrived(5)
        await kill_at(process, 0)
    folder = run_dir(tmp_path)
    assert len(lines(folder)) == 3
    async with scripted_provider() as provider:
        done = await resume(folder, "--client.base-url", provider.base_url, "--json")
        assert len(provider.requests) == 2
    assert done.code == 0, done.stderr
    records = read_lines(folder / "traces.jsonl")
    assert len(set(identities(folder))) == len(records) == 6
    assert {record["rewards"]["longest"]["score"] for record in records} == {3.0}
    # Those of the first launch are billed once.
    assert done.json["turns"] == 6


@pytest.mark.parametrize("number", range(6))
async def test_groups_survive_a_kill_at_a_random_moment(tmp_path: Path, number: int) -> None:
    (tmp_path / "env.py").write_text(GROUP.replace("range(2)", "range(4)"))
    async with scripted_provider(default=completion("7", delay=0.05)) as provider:
        options = (*on(provider), "-r", "3", "-c", "3")
        moment = random.Random(number).uniform(0.5, LONGEST_S)
        await kill_at(await start_vfx("eval", "./env.py", *options, cwd=tmp_path), moment)
        if not list(tmp_path.glob("outputs/*/*/config.toml")):
            return
        folder = run_dir(tmp_path)
        done = await resume(folder, "--json")
    assert done.code == 0, done.stderr
    assert len(set(identities(folder))) == len(identities(folder)) == done.json["scored"] == 12
    assert {record["rewards"]["longest"]["score"] for record in read_lines(folder / "traces.jsonl")} == {3.0}
    assert 12 <= len(provider.requests) <= 15


async def test_a_group_that_is_extended_is_compared_anew(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(GROUP)
    async with scripted_provider() as provider:
        await vfx("eval", "./env.py", *on(provider), "-r", "2", cwd=tmp_path)
        folder = run_dir(tmp_path)
        done = await resume(folder, "-r", "3", "--json")
        assert len(provider.requests) == 6
    records = read_lines(folder / "traces.jsonl")
    assert len(set(identities(folder))) == len(records) == 6
    assert {record["rewards"]["longest"]["score"] for record in records} == {3.0}
    assert done.json["scored"] == 6
    assert done.json["turns"] == 6


async def test_an_errored_member_is_left_out_of_the_comparison(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(GROUP)
    refusal = Reply(400, body=b'{"error": {"message": "not that one"}}')
    async with scripted_provider(completion(), refusal) as provider:
        done = await vfx("eval", "./env.py", *on(provider), "-r", "3", "-c", "1", "--json", cwd=tmp_path)
        folder = run_dir(tmp_path)
        assert (done.json["scored"], done.json["errored"]) == (5, 1)
        scores = [record["rewards"]["longest"]["score"] for record in read_lines(folder / "traces.jsonl")]
        assert sorted(scores, key=str) == [2.0, 2.0, 3.0, 3.0, 3.0, None]
        done = await resume(folder, "--json")
        assert len(provider.requests) == 7
    assert done.json["scored"] == 6
    assert {record["rewards"]["longest"]["score"] for record in read_lines(folder / "traces.jsonl")} == {3.0}


async def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(tmp_path: Path) -> None:
    disk = tmp_path / "outputs"
    disk.mkdir()
    mount = shutil.which("mount")
    done = mount and await anyio.run_process([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=False)
    if not done or done.returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        await _fill_and_go_on(tmp_path, disk)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.run_process(["umount", "--lazy", str(disk)])


async def _fill_and_go_on(tmp_path: Path, disk: Path) -> None:
    async with scripted_provider(default=completion("x" * 60_000, delay=0.02)) as provider:
        done = await vfx(
            "eval", "arithmetic", *on(provider), "-n", "60", "--taskset.size", "60", "-c", "4", cwd=tmp_path
        )
        folder = run_dir(tmp_path)
        assert done.code == 1
        assert (done.stdout + done.stderr).count("No space left on device") == 1
        assert "Traceback" not in done.stderr
        kept = lines(folder)
        assert 20 < len(kept) < 40
        paid = len(provider.requests)
        # The one that could not be kept, and those that ran beside it.
        assert paid <= len(kept) + 5
        remount = ["mount", "-o", "remount,size=16m", str(disk)]
        await anyio.run_process(remount)
        done = await resume(folder, "--json")
        assert len(provider.requests) == paid + 60 - len(kept)
    assert done.code == 0, done.stderr
    assert lines(folder)[: len(kept)] == kept
    assert len(set(identities(folder))) == len(lines(folder)) == done.json["scored"] == 60


async def test_a_summary_that_can_not_be_written_fails_the_run_and_loses_nothing(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "2", cwd=tmp_path)
    folder = run_dir(tmp_path)
    (folder / "summary.json").unlink()
    (folder / "summary.json").mkdir()
    done = await resume(folder, "-n", "3")
    assert done.code == 1
    assert "summary.json: can't be written: Is a directory" in done.stdout
    assert "Traceback" not in done.stderr
    assert len(lines(folder)) == 3
    (folder / "summary.json").rmdir()
    done = await resume(folder)
    assert done.code == 0, done.stderr


async def test_a_kill_leaves_nothing_half_replaced_behind(tmp_path: Path) -> None:
    await vfx("eval", "arithmetic", "--client.type", "scripted", "-n", "1", cwd=tmp_path)
    folder = run_dir(tmp_path)
    (folder / "traces.jsonl.new").write_text("half")
    done = await resume(folder)
    assert done.code == 0, done.stderr
    assert not (folder / "traces.jsonl.new").exists()
