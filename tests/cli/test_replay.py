"""`vfx replay` from outside: a run, a change to its environment, and what becomes of the numbers."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.command import Done, read_lines, start_vfx, vfx
from tests.support.processes import handles_signals
from tests.support.provider import Reply, completion, scripted_provider

pytestmark = pytest.mark.anyio

ENVIRONMENT = """
import vfx

class Sum(vfx.Task):
    answer: int

    @vfx.reward
    def right(self, trace):
        return float(trace.last_reply == str(self.answer))

    @vfx.metric
    def length(self, trace):
        return len(trace.last_reply)

class Sums(vfx.Taskset[Sum]):
    size: int = 4

    def load(self):
        for n in range(self.size):
            yield Sum(prompt=f"{n} + 1?", answer=n + 1, id=f"plus-{n}")
"""


DOWN = Reply(status=500, body=b'{"error": {"message": "down"}}')


def write(tmp_path: Path, text: str = ENVIRONMENT, **changes: str) -> None:
    """Write the environment, with some of its lines replaced."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "sums.py").write_text(text)


async def run(tmp_path: Path, *argv: str, replies: tuple[str, ...] = ("2",)) -> Path:
    """A finished run of the environment."""
    script = ("--client.type", "scripted", "--client.replies", json.dumps(replies))
    done = await vfx("eval", "./sums.py", *script, "--name", "old", "--display", "none", *argv, cwd=tmp_path)
    assert done.code in (0, 1), done.stderr
    return tmp_path / "outputs/sums--scripted--chat/old"


async def replayed(tmp_path: Path, old: Path, *argv: str) -> Done:
    return await vfx("replay", old.relative_to(tmp_path), "--name", "new", *argv, cwd=tmp_path)


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """What a summary says about the rollouts, whoever made it."""
    own = {"run_dir", "replay_of", "replay", "started", "seconds", "peak_servers", "servers_left", "retries"}
    # What only a run on models has.
    own |= {"concurrency", "earlier_rollouts", "injected_faults", "tape", "tool_server_restarts"}
    return {name: value for name, value in record.items() if name not in own}


async def test_where_nothing_changed_the_numbers_are_the_same(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path, "-r", "2")
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    done = await replayed(tmp_path, old, "--json")
    assert done.code == 0, done.stderr
    summary = json.loads((old / "summary.json").read_text())
    assert numbers(done.json) == numbers(summary)
    assert done.json["replay"]["changed"] == 0
    assert done.json["replay_of"] == str(old.relative_to(tmp_path))
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    new = old.parent / "new"
    assert json.loads((new / "summary.json").read_text()) == done.json
    assert sorted(read_lines(new / "traces.jsonl"), key=str) == sorted(read_lines(old / "traces.jsonl"), key=str)


async def test_with_errors_the_numbers_are_the_same_in_every_command(tmp_path: Path) -> None:
    """B16: 6 rollouts with reward 1, 1 with 0, 2 provider errors, 1 scoring error."""
    scoring = "if self.answer == 8: raise RuntimeError('no grader')\n        return float(self.answer != 7)"
    text = ENVIRONMENT.replace("return float(trace.last_reply == str(self.answer))", scoring)
    write(tmp_path, text)
    async with scripted_provider(DOWN, DOWN, default=completion("x")) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none")
        options += ("--client.max-retries", "0", "-c", "1", "--name", "old", "--taskset.size", "10", "--json")
        ran = await vfx("eval", "./sums.py", *options, cwd=tmp_path)
    assert (ran.json["scored"], ran.json["errors"]) == (7, {"provider": 2, "scoring": 1})
    old = tmp_path / "outputs/sums--m--chat/old"
    done = await replayed(tmp_path, old, "--json")
    assert numbers(done.json) == numbers(ran.json)
    assert done.code == ran.code
    # The grader is back: what only failed to be scored is scored, what failed before stays errored.
    write(tmp_path, text.replace("if self.answer == 8: raise RuntimeError('no grader')\n        ", ""))
    mended = await vfx("replay", old, "--json", cwd=tmp_path)
    assert (mended.json["scored"], mended.json["errors"]) == (8, {"provider": 2})
    assert mended.json["replay"]["changed"] == 1
    [change] = mended.json["replay"]["most_changed"]
    assert (change["task"], change["old"], change["new"]) == ("plus-7", None, 1.0)


async def test_a_changed_reward_is_shown_with_its_difference(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    write(tmp_path, **{"float(trace.last_reply == str(self.answer))": "1.0 if self.answer > 2 else 0.25"})
    done = await replayed(tmp_path, old)
    assert done.code == 0, done.stderr
    rows = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert ("reward", "0.250", "0.625", "+0.375") in rows
    assert ("reward", "right", "0.250", "0.625", "+0.375") in rows
    assert ("metric", "length", "1.000", "1.000", "+0.000") in rows
    assert "4 rollouts: 4 scored, 0 errored; 4 changed" in done.stdout
    changed = done.stdout.partition("changed most:\n")[2].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in changed] == ["plus-2", "plus-3", "plus-1", "plus-0"]


async def test_what_needs_the_runtime_stays_as_recorded(tmp_path: Path) -> None:
    runtime_reward = "    @vfx.reward(weight=0.5)\n    async def tests(self, runtime):\n        return self.answer\n\n"
    write(tmp_path, **{"    @vfx.metric\n": runtime_reward + "    @vfx.metric\n"})
    old = await run(tmp_path)
    write(
        tmp_path,
        **{
            "    @vfx.metric\n": runtime_reward.replace("0.5", "2.0").replace("self.answer", "1 / 0")
            + "    @vfx.metric\n"
        },
    )
    done = await replayed(tmp_path, old, "--json")
    assert done.json["replay"]["kept"] == {"reward tests": 4}
    assert done.json["rewards"]["tests"]["mean"] == 2.5
    # 0.25 + 2.0 * 2.5: the weight is today's.
    assert done.json["reward"]["mean"] == 5.25


async def test_a_new_reward_that_needs_the_runtime_is_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    write(
        tmp_path,
        **{"    @vfx.metric\n": "    @vfx.reward\n    def new(self, runtime):\n        return 1\n\n    @vfx.metric\n"},
    )
    done = await replayed(tmp_path, old)
    assert "left out: reward new, 4 times; it needs the runtime or a judge and was not recorded" in done.stdout
    assert done.code == 0


async def test_tasks_that_are_gone_or_changed_are_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    done = await replayed(tmp_path, old, "--taskset.size", "3", "--json")
    assert done.json["replay"]["left_out"] == {"its task is no longer there, or has other data now": 1}
    assert (done.json["planned"], done.json["scored"]) == (3, 3)
    assert done.json["replay"]["differences"][0]["old"] == pytest.approx(1 / 3)


async def test_a_key_of_its_own_with_other_data_is_left_out(tmp_path: Path) -> None:
    own_key = "    answer: int\n\n    @property\n    def key(self):\n        return self.id\n"
    write(tmp_path, **{"    answer: int\n": own_key})
    old = await run(tmp_path)
    write(tmp_path, **{"    answer: int\n": own_key, "answer=n + 1": "answer=max(n + 1, 2)"})
    done = await replayed(tmp_path, old, "--json")
    assert done.json["replay"]["left_out"] == {"its task has other data now": 1}


async def test_a_task_with_a_new_field_is_still_the_same(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    write(
        tmp_path,
        **{"    answer: int\n": "    answer: int\n    bonus: float = 0.5\n", "return float(": "return self.bonus * ("},
    )
    done = await replayed(tmp_path, old, "--json")
    assert done.json["replay"]["left_out"] == {}
    assert done.json["reward"]["mean"] == 0.125
    assert read_lines(old.parent / "new/traces.jsonl")[0]["task"]["data"]["bonus"] == 0.5


async def test_group_rewards_compare_the_recorded_rollouts(tmp_path: Path) -> None:
    group = "    @vfx.group_reward\n    def first(self, traces):\n"
    group += "        return [float(t.rollout == 0) for t in traces]\n\n"
    write(tmp_path, **{"    @vfx.metric\n": group + "    @vfx.metric\n"})
    old = await run(tmp_path, "-r", "3")
    same = await replayed(tmp_path, old, "--json")
    assert numbers(same.json) == numbers(json.loads((old / "summary.json").read_text()))
    write(tmp_path, **{"    @vfx.metric\n": group.replace("== 0", "> 0") + "    @vfx.metric\n"})
    done = await vfx("replay", old, "--json", cwd=tmp_path)
    assert done.json["rewards"]["first"]["mean"] == pytest.approx(2 / 3)


async def test_gates_decide_the_exit_code(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    done = await replayed(tmp_path, old, "--fail-under", "0.5")
    assert (done.code, "exit        3: mean reward 0.25, less than --fail-under 0.5" in done.stdout) == (3, True)


async def test_rewards_that_fail_now_are_errors(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    write(tmp_path, **{"return float(": "import time; time.sleep(9); return float("})
    done = await replayed(tmp_path, old, "--timeout.scoring", "0.2")
    assert done.code == 1
    assert "4 x scoring: scoring took longer than 0.2 s (--timeout.scoring)" in done.stdout


async def test_a_used_name_and_the_old_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    for name in ("old", "new"):
        done = await vfx("replay", old, "--name", name, cwd=tmp_path)
    assert done.code == 0
    again = await vfx("replay", old, "--name", "old", cwd=tmp_path)
    assert (again.code, "it is in use already" in again.stderr) == (2, True)
    assert (await vfx("replay", old, "--name", "new", "--replace", cwd=tmp_path)).code == 0
    own = await vfx("replay", old, "--name", "old", "--replace", cwd=tmp_path)
    assert (own.code, "is the run that is replayed" in own.stderr) == (2, True)
    assert len(read_lines(old / "traces.jsonl")) == 4


async def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for argv, said in (
        ((), "RUN_DIR: no run is named"),
        (("nowhere",), "there is no such folder"),
        ((".",), "is not a run folder: it has no config.toml and no traces.jsonl"),
    ):
        done = await vfx("replay", *argv, cwd=tmp_path)
        assert (done.code, said in done.stderr) == (2, True), done.stderr


async def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    with (old / "traces.jsonl").open("ab") as file:
        file.write(b"{}\n")
    done = await replayed(tmp_path, old)
    assert (done.code, "traces.jsonl: line 5: is no record" in done.stderr) == (2, True), done.stderr


async def test_a_torn_last_line_and_variables_of_today_do_not_count(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    with (old / "traces.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 1, "id"')
    done = await vfx("replay", old, "--json", cwd=tmp_path, env={"VFX_TASKSET__SIZE": "1", "VFX_MODEL": "other"})
    assert (done.json["scored"], done.json["model"]) == (4, "scripted")


async def test_a_masked_header_does_not_stand_in_the_way(tmp_path: Path) -> None:
    write(tmp_path)
    async with scripted_provider(default=completion("2")) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none", "--name", "old")
        await vfx("eval", "./sums.py", *options, "--client.headers.X-Team", "secret", cwd=tmp_path)
    done = await vfx("replay", "outputs/sums--m--chat/old", "--json", cwd=tmp_path)
    assert done.json["scored"] == 4, done.stderr


async def test_a_run_that_was_moved_is_replayed_where_it_is(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path)
    shutil.move(old, tmp_path / "kept")
    done = await vfx("replay", "kept", "--output-dir", "again", "--json", cwd=tmp_path)
    assert done.json["run_dir"].startswith("again/sums--scripted--chat/")


async def test_ctrl_c_keeps_what_was_scored(tmp_path: Path) -> None:
    write(tmp_path)
    old = await run(tmp_path, "-c", "1")
    wait = "import anyio; open('begun', 'w').close(); await anyio.sleep(60 * (self.answer == 2))\n        "
    write(tmp_path, **{"def right(": "async def right(", "return float(": f"{wait}return float("})
    process = await start_vfx("replay", old, "--name", "new", "-c", "1", cwd=tmp_path)
    async with process:
        assert await handles_signals(process.pid)
        with anyio.fail_after(30):
            while not (tmp_path / "begun").exists() or not (old.parent / "new/traces.jsonl").read_bytes():
                await anyio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    assert len(read_lines(old.parent / "new/traces.jsonl")) == 1
    assert json.loads((old.parent / "new/summary.json").read_text())["exit_reason"] == "interrupted"
