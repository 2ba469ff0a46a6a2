"""Environments of people's own, run by the command."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.command import read_lines, run_dir, start_vfx, vfx
from tests.support.processes import survivors

pytestmark = pytest.mark.anyio

SCRIPTED = ("--client.type", "scripted", "--display", "plain")

ENVIRONMENT = """
import os, re, time
from pathlib import Path
from typing import ClassVar
import vfx

class Word(vfx.Task):
    answer: str

    @vfx.reward
    def right(self, trace):
        return self.answer in trace.last_reply

    @vfx.reward(isolate=True)
    def apart(self, trace):
        Path("worker").write_text("x")
        if self.id == "endless":
            re.fullmatch("(a+)+b", "a" * 60)
        return os.getpid() != int(Path("pid").read_text())

class Words(vfx.Taskset[Word]):
    ids: tuple[str, ...] = ("a", "b")

    def load(self):
        Path("pid").write_text(str(os.getpid()))
        for id in self.ids:
            yield Word(prompt=f"Say yes, {id}", answer="yes", id=id)

class Contest(vfx.Task):
    @vfx.group_reward
    async def shortest(self, traces):
        return [trace.rollout / 10 for trace in traces]

class Contests(vfx.Taskset[Contest]):
    infinite: ClassVar[bool] = True

    def load(self):
        while True:
            yield Contest(prompt="be brief")
"""


@pytest.fixture
def env(tmp_path: Path) -> str:
    (tmp_path / "words.py").write_text(ENVIRONMENT)
    (tmp_path / "my_checks.py").write_text(
        "def exact(trace, task):\n    return trace.last_reply == 'yes ' + task.id\n"
        "async def chars(trace):\n    return len(trace.last_reply)\n"
        "def at_once(trace):\n    return True\n"
    )
    return "./words.py:Words"


async def test_rewards_and_metrics_come_from_flags_and_files(tmp_path: Path, env: str) -> None:
    (tmp_path / "run.toml").write_text(
        "[taskset.task.rewards]\nexact = { fn = 'my_checks.py:exact', weight = 0.5 }\n"
        "[taskset.task.metrics.chars]\nfn = 'my_checks.py:chars'\n"
    )
    weight = ("--taskset.task.rewards.right.weight", "0.25")
    done = await vfx("eval", env, "@", "run.toml", *SCRIPTED, "--client.replies", '["yes a"]', *weight, cwd=tmp_path)
    assert done.code == 0, done.stderr
    first, second = sorted(read_lines(run_dir(tmp_path) / "traces.jsonl"), key=lambda record: record["task"]["id"])
    assert (first["reward"], second["reward"]) == (0.25 + 1 + 0.5, 0.25 + 1 + 0)
    assert first["metrics"] == {"chars": 5.0}
    assert first["rewards"]["exact"] == {"score": 1.0, "weight": 0.5}


async def test_a_stop_from_a_flag_ends_rollouts(tmp_path: Path, env: str) -> None:
    stop = ("--taskset.task.stops.at_once.fn", "my_checks.py:at_once")
    done = await vfx("eval", env, *SCRIPTED, *stop, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert {record["stop_condition"] for record in read_lines(run_dir(tmp_path) / "traces.jsonl")} == {"at_once"}


async def test_mistakes_in_configured_rewards_are_found_before_anything_starts(tmp_path: Path, env: str) -> None:
    done = await vfx(
        "eval",
        env,
        *SCRIPTED,
        "--taskset.task.rewards.rihgt.weight",
        "2",
        "--taskset.task.metrics.chars.fn",
        "my_checks.py:char",
        cwd=tmp_path,
    )
    assert done.code == 2
    assert "no task has a reward 'rihgt'; a new one needs fn (did you mean right?)" in done.stderr
    assert "'my_checks.py' has no function 'char' (did you mean chars?)" in done.stderr
    assert not (tmp_path / "outputs").exists()


async def test_group_rewards_score_every_rollout_of_a_task(tmp_path: Path, env: str) -> None:
    contests = env.replace("Words", "Contests")
    done = await vfx("eval", contests, *SCRIPTED, "-n", "2", "-r", "3", cwd=tmp_path)
    assert done.code == 0, done.stderr
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert sorted(record["reward"] for record in records) == [0, 0, 0.1, 0.1, 0.2, 0.2]


async def test_what_can_not_be_run_to_an_end_is_a_mistake(tmp_path: Path, env: str) -> None:
    contests = env.replace("Words", "Contests")
    done = await vfx("eval", contests, *SCRIPTED, "--shuffle", cwd=tmp_path)
    assert done.code == 2
    assert "-n: ./words.py:Contests gives tasks without end" in done.stderr
    assert "--shuffle: ./words.py:Contests gives tasks without end" in done.stderr
    done = await vfx("eval", contests, *SCRIPTED, "-n", "1", cwd=tmp_path)
    assert done.code == 2
    assert "-r: group reward 'shortest' compares the rollouts of a task" in done.stderr


async def test_an_isolated_reward_is_killed_at_its_deadline_and_the_others_stay(tmp_path: Path, env: str) -> None:
    deadline = ("--timeout.scoring", "2", "--max-error-share", "1")
    ids = ("--taskset.ids", '["a", "endless"]')
    done = await vfx("eval", env, *SCRIPTED, "--client.replies", '["yes"]', *ids, *deadline, cwd=tmp_path)
    assert done.code == 0, done.stderr
    fine, late = sorted(read_lines(run_dir(tmp_path) / "traces.jsonl"), key=lambda record: record["task"]["id"])
    assert fine["reward"] == 2
    assert late["rewards"]["right"]["score"] == 1
    assert late["rewards"]["apart"]["score"] is None
    assert [error["message"] for error in late["errors"]] == ["scoring took longer than 2 s (--timeout.scoring)"]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
async def test_no_hook_process_outlives_the_run(tmp_path: Path, env: str, signum: signal.Signals, code: int) -> None:
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    ids = ("--taskset.ids", '["endless"]')
    process = await start_vfx("eval", env, *SCRIPTED, *ids, cwd=tmp_path, env={"MARK": mark})
    with anyio.fail_after(30):
        while not (tmp_path / "worker").exists():
            await anyio.sleep(0.05)
        os.killpg(process.pid, signum) if signum == signal.SIGINT else process.send_signal(signum)
        assert await process.wait() == code
        while survivors(mark):
            await anyio.sleep(0.05)
    await process.aclose()


async def test_a_bound_that_was_given_beats_the_tasks_own(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import vfx, anyio\n"
        "class Slow(vfx.Task):\n    async def finalize(self): await anyio.sleep(30)\n"
        "class Slows(vfx.Taskset[Slow]):\n    def load(self):\n"
        "        yield Slow(prompt='x', timeout=vfx.TaskTimeouts(finalize=60))\n"
    )
    done = await vfx("eval", "./slow.py", *SCRIPTED, "--timeout.finalize", "0.2", cwd=tmp_path)
    assert done.code == 1
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert record["errors"][0]["message"] == "finalize took longer than 0.2 s (--timeout.finalize)"


async def test_a_file_of_prompts_needs_no_code(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("prompt,answer\n2+2?,4\n1+1?,2\n")
    data = ("--taskset.path", "data.csv", "--taskset.match", "number", "--client.replies", '["It is 4."]')
    done = await vfx("eval", "file", *SCRIPTED, *data, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert sorted(record["reward"] for record in read_lines(run_dir(tmp_path) / "traces.jsonl")) == [0, 1]
    (tmp_path / "data.csv").write_text("prompt,answer\n2+2?\n")
    done = await vfx("eval", "file", *SCRIPTED, *data, cwd=tmp_path)
    assert done.code == 2
    assert "data.csv, line 2: expected 2 columns, found fewer" in done.stderr


async def test_a_game_is_played_in_turns(tmp_path: Path) -> None:
    replies = ("--client.replies", '["50", "25", "12"]')
    done = await vfx("eval", "guess-number", *SCRIPTED, *replies, "-n", "2", cwd=tmp_path)
    assert done.code == 0, done.stderr
    records = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert {record["agent"]["harness"]["id"] for record in records} == {"chat"}
    for record in records:
        assert record["num_turns"] == record["metrics"]["guesses"] == 9 or record["reward"] == 1
        assert record["num_turns"] == 1 or "My number is" in record["nodes"][2]["message"]["content"]


async def test_task_data_may_hold_lone_surrogates(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "say \\ud835", "answer": "\\ud835"}\n')
    done = await vfx("eval", "file", "--taskset.path", "data.jsonl", *SCRIPTED, cwd=tmp_path)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert record["task"]["data"]["answer"] == "\ud835"
    assert record["nodes"][0]["message"]["content"] == "say \ud835"
