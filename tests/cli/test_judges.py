"""Judges from outside: a real process, a provider for the evaluated model and one for its judges."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Done, read_lines, run_dir, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio

CAPITALS = """
import vfx

class Capital(vfx.Task):
    answer: str

    @vfx.reward
    def exact(self, trace):
        return trace.last_reply == self.answer

class Capitals(vfx.Taskset[Capital]):
    size: int = 4

    def load(self):
        for number in range(self.size):
            yield Capital(prompt=f"Capital of country {number}?", answer=f"City {number}", id=f"c{number}")
"""

# What a judge says of each reply; None in the third place stands for no score.
ANSWERS: tuple[tuple[str, Reply, float | None], ...] = (
    ("plain", completion('{"score": 0.8}', usage=(10, 2)), 0.8),
    ("fenced", completion('```json\n{"score": 0.8}\n```', usage=(10, 2)), 0.8),
    ("prose", completion('So: {"score": 0.8} I am sure.', usage=(10, 2)), 0.8),
    ("number as text", completion('{"score": "0.8"}', usage=(10, 2)), 0.8),
    ("cut off", completion('{"reasoning": "because', usage=(10, 2)), None),
    ("empty", completion("", usage=(10, 2)), None),
    ("refusal", completion("I will not.", usage=(10, 2)), None),
    ("array", completion('["score", 0.8]', usage=(10, 2)), None),
    ("off the scale", completion('{"score": 1.7}', usage=(10, 2)), None),
    ("two", completion('{"score": 0.1} {"score": 0.9}', usage=(10, 2)), None),
    (
        "tool call",
        completion(
            None,
            tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            usage=(10, 2),
        ),
        None,
    ),
)


def number_of(request: Request) -> int:
    """Which task a judge is asked about."""
    user = next(message for message in request.json()["messages"] if message["role"] == "user")
    return int(user["content"].partition("country ")[2].partition("?")[0])


@asynccontextmanager
async def providers(judge: Any = None) -> AsyncGenerator[tuple[Provider, Provider]]:
    """One for the evaluated model, which gives a city, and one for the judge."""
    verdict = judge or completion('{"reasoning": "", "score": 0.5}')
    async with (
        scripted_provider(default=completion("City 0", usage=(3, 1))) as model,
        scripted_provider(default=verdict) as judges,
    ):
        yield model, judges


def on(model: Provider) -> tuple[str, ...]:
    return ("-m", "evaluated", "--client.base-url", model.base_url, "--client.api-key-var", "none")


def judge_of(provider: Provider, **more: Any) -> dict[str, Any]:
    client = {"type": "http", "base_url": provider.base_url, "api_key_var": "none", "max_retries": 0}
    return {"type": "reference", "model": "judge-model", "client": {**client, **more.pop("client", {})}, **more}


async def evaluated(folder: Path, model: Provider, *judges: dict[str, Any], options: tuple[str, ...] = ()) -> Done:
    (folder / "capitals.py").write_text(CAPITALS)
    given = ("--taskset.task.judges", json.dumps(judges)) if judges else ()
    return await vfx("eval", "capitals.py", *on(model), *given, *options, cwd=folder)


def records_of(folder: Path) -> dict[int, dict[str, Any]]:
    lines = read_lines(run_dir(folder) / "traces.jsonl")
    return {int(record["task"]["id"][1:]): record for record in lines}


async def test_answers_that_are_no_verdict_are_errors_of_their_rollouts_and_never_a_score(tmp_path: Path) -> None:
    def verdict(request: Request) -> Reply:
        return ANSWERS[number_of(request)][1]

    options = ("--taskset.size", str(len(ANSWERS)), "--max-error-share", "1")
    async with providers(verdict) as (model, judges):
        done = await evaluated(tmp_path, model, judge_of(judges, max_asks=2), options=options)
        asked = [number_of(request) for request in judges.requests]
    assert done.code == 0, done.stderr
    records = records_of(tmp_path)
    assert len(records) == len(ANSWERS)
    for number, (name, _, expected) in enumerate(ANSWERS):
        record = records[number]
        assert record["rewards"]["reference"]["score"] == expected, name
        assert record["rewards"]["exact"]["score"] is not None, name
        assert asked.count(number) == (1 if expected is not None else 2), name
        assert len(record["side_calls"]) == asked.count(number), name
        assert [error["kind"] for error in record["errors"]] == ([] if expected is not None else ["scoring"]), name
        assert record["usage"]["input_tokens"] == 3, name
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert (summary["scored"], summary["errored"]) == (4, 7)
    assert summary["rewards"]["reference"]["mean"] == pytest.approx(0.8)
    usage = summary["side_usage"]["judge"]
    assert (usage["calls"], usage["input_tokens"], usage["failed_calls"]) == (4, 40, 14)
    assert usage["failed_usage"]["input_tokens"] == 140
    assert summary["usage"]["input_tokens"] == 3 * len(ANSWERS)
    assert all(cause["advice"].startswith("another judge model") for cause in summary["error_causes"])
    assert "in 4 calls of judge models, not counted above; 14 came to" in " ".join(done.stdout.split())


async def test_a_judge_of_the_file_replaces_one_of_the_code_and_rewards_weigh_it(tmp_path: Path) -> None:
    source = CAPITALS.replace(
        "    answer: str\n", "    answer: str\n    judges = (vfx.ReferenceJudge(name='exact2'),)\n", 1
    )
    (tmp_path / "capitals.py").write_text(source)
    async with providers() as (model, judges):
        entry = judge_of(judges)
        (tmp_path / "run.toml").write_text(
            f"""
            [[taskset.task.judges]]
            type = "reference"
            name = "exact2"
            model = "judge-model"
            client = {{ type = "http", base_url = "{entry["client"]["base_url"]}", api_key_var = "none" }}

            [taskset.task.rewards]
            exact2 = {{ weight = 3 }}
            """
        )
        done = await vfx("eval", "capitals.py", "@", "run.toml", *on(model), "-n", "1", cwd=tmp_path)
        assert len(judges.requests) == 1
    assert done.code == 0, done.stderr
    assert records_of(tmp_path)[0]["rewards"]["exact2"] == {"score": 0.5, "weight": 3.0}


async def test_judges_ask_the_evaluated_model_unless_they_name_another(tmp_path: Path) -> None:
    async with providers() as (model, judges):
        done = await evaluated(tmp_path, model, {"type": "reference"}, options=("-n", "1", "--max-error-share", "1"))
        assert judges.requests == []
        assert [request.json()["model"] for request in model.requests[:2]] == ["evaluated", "evaluated"]
        client = judge_of(judges)["client"]
        options = [
            word for name, value in client.items() for word in (f"--taskset.task.judge-model.client.{name}", value)
        ]
        options += ["--taskset.task.judge-model.model", "judge-model", "-n", "1", "--name", "other"]
        done = await evaluated(tmp_path, model, {"type": "reference"}, options=tuple(map(str, options)))
        assert [request.json()["model"] for request in judges.requests] == ["judge-model"]
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("way", ["flag", "file", "environment"])
async def test_a_misspelt_option_of_a_judge_is_a_mistake_wherever_it_was_given(tmp_path: Path, way: str) -> None:
    (tmp_path / "capitals.py").write_text(CAPITALS)
    (tmp_path / "run.toml").write_text('[[taskset.task.judges]]\ntype = "reference"\nmodle = "m"\n')
    text = '[{"type": "reference", "modle": "m"}]'
    options = {"flag": ("--taskset.task.judges", text), "file": ("@", "run.toml"), "environment": ()}[way]
    env = {"VFX_TASKSET__TASK__JUDGES": text} if way == "environment" else {}
    done = await vfx("eval", "capitals.py", "--client.type", "scripted", *options, "--dry-run", cwd=tmp_path, env=env)
    assert done.code == 2
    assert "taskset.task.judges[0].modle: unknown option; did you mean model?" in done.stderr
    if way == "file":
        assert "run.toml: taskset.task.judges[0].modle" in done.stderr


async def test_what_is_wrong_with_judges_is_told_before_anything_starts(tmp_path: Path) -> None:
    async with providers() as (model, judges):
        keyed = judge_of(judges, client={"api_key_var": "NO_SUCH_KEY"})
        done = await evaluated(tmp_path, model, keyed, {"type": "reference", "name": "b", "answer_field": "anser"})
        assert "taskset.task.judges[1].answer_field: Capital has no field 'anser'" in done.stderr
        again = await evaluated(tmp_path, model, keyed)
        key = judge_of(judges, client={"api_key_var": "sk-abc"})
        third = await evaluated(tmp_path, model, key)
        assert model.requests == judges.requests == []
    assert (done.code, again.code, third.code) == (2, 2, 2)
    assert "taskset.task.judges[0].client (NO_SUCH_KEY): the key for 127.0.0.1" in again.stderr
    assert "taskset.task.judges[0].client.api_key_var" in again.stderr
    assert "taskset.task.judges[0].client.api_key_var: expected the name of an environment variable" in third.stderr
    assert not (tmp_path / "outputs").exists()


async def test_a_judge_that_refuses_everyone_ends_the_run_early(tmp_path: Path) -> None:
    refused = Reply(status=401, body=b'{"error": {"message": "bad key"}}')
    async with providers(refused) as (model, judges):
        options = ("--taskset.size", "60", "-c", "4")
        done = await evaluated(tmp_path, model, judge_of(judges), options=options)
        assert len(judges.requests) < 30
    assert done.code == 1
    assert "all failed alike: judge 'reference': HTTP 401" in " ".join(done.stdout.split())
    assert "a key that may use the judge's model" in " ".join(done.stdout.split())


async def test_a_judge_with_a_deadline_costs_only_its_own_score(tmp_path: Path) -> None:
    async with providers(completion('{"score": 1}', delay=20.0)) as (model, judges):
        options = ("-n", "1", "--timeout.scoring", "0.5", "--max-error-share", "1")
        done = await evaluated(tmp_path, model, judge_of(judges), options=options)
    assert "took longer than 0.5 s (--timeout.scoring)" in " ".join(done.stdout.split())
    record = records_of(tmp_path)[0]
    assert record["rewards"] == {"exact": {"score": 1.0, "weight": 1.0}, "reference": {"score": None, "weight": 1.0}}
    assert record["side_calls"][0]["error"] is not None


async def test_a_replay_keeps_verdicts_and_asks_nobody(tmp_path: Path) -> None:
    async with providers() as (model, judges):
        rubric: dict[str, Any] = judge_of(judges) | {"type": "rubric", "criteria": [{"name": "clear"}], "name": "style"}
        scores = completion('{"scores": {"clear": 0.5}}')
        async with scripted_provider(default=scores) as other:
            rubric["client"]["base_url"] = other.base_url
            done = await evaluated(tmp_path, model, judge_of(judges), rubric, options=("-n", "2"))
        assert done.code == 0, done.stderr
        asked = len(judges.requests)
    folder = run_dir(tmp_path)
    again = await vfx("replay", str(folder), "--name", "again", cwd=tmp_path)
    assert again.code == 0, again.stderr
    assert asked == 2
    assert "kept as recorded: reward reference, 2 times" in again.stdout
    assert "0 changed" in again.stdout
    (record, _) = read_lines(folder.parent / "again" / "traces.jsonl")
    assert record["metrics"] == {"style.clear": 0.5}


async def test_programs_that_run_again_are_judged_from_the_record(tmp_path: Path) -> None:
    async with providers() as (model, judges):
        keyed = judge_of(judges, client={"api_key_var": "JUDGE_KEY"}, repeat=2)
        (tmp_path / "capitals.py").write_text(CAPITALS)
        given = ("--taskset.task.judges", json.dumps([keyed]), "-n", "2")
        done = await vfx("eval", "capitals.py", *on(model), *given, cwd=tmp_path, env={"JUDGE_KEY": "k"})
        assert done.code == 0, done.stderr
        asked = len(judges.requests)
        folder = run_dir(tmp_path)
        again = await vfx("replay", folder, "--rerun", "--name", "again", cwd=tmp_path)
        assert len(judges.requests) == asked == 4
    assert again.code == 0, again.stderr + again.stdout
    assert "2 scored, 0 errored; 0 changed" in again.stdout
    (record, _) = read_lines(folder.parent / "again" / "traces.jsonl")
    assert len(record["side_calls"]) == 2


async def test_a_resumed_run_may_reach_its_judges_elsewhere_but_not_judge_otherwise(tmp_path: Path) -> None:
    async with providers() as (model, judges):
        done = await evaluated(tmp_path, model, judge_of(judges), options=("--name", "run"))
        assert done.code == 0, done.stderr
        folder = run_dir(tmp_path)
        moved = json.dumps([judge_of(judges, client={"base_url": "http://127.0.0.1:9/v1"})])
        same = await vfx("eval", "--resume", folder, "--taskset.task.judges", moved, cwd=tmp_path)
        assert same.code == 0, same.stderr
        other = json.dumps([judge_of(judges, repeat=2)])
        refused = await vfx("eval", "--resume", folder, "--taskset.task.judges", other, cwd=tmp_path)
    assert refused.code == 2
    assert "taskset.task.judges[0].repeat: was 1 when the run began and is 2 now" in refused.stderr


async def test_secrets_of_a_judge_s_client_are_in_no_file(tmp_path: Path) -> None:
    echo = Reply(status=400, body=b'{"error": {"message": "you sent Bearer s3cret-key and s3cret-header"}}')
    (tmp_path / "capitals.py").write_text(CAPITALS)
    async with providers(echo) as (model, judges):
        client = {"api_key_var": "JUDGE_KEY", "headers": {"X-Team": "s3cret-header"}}
        client["base_url"] = judges.base_url + "?sig=s3cret-parameter"
        given = ("--taskset.task.judges", json.dumps([judge_of(judges, client=client)]))
        options = ("-n", "1", "--log-level", "debug", "--max-error-share", "1")
        env = {"JUDGE_KEY": "s3cret-key"}
        done = await vfx("eval", "capitals.py", *on(model), *given, *options, cwd=tmp_path, env=env)
        assert judges.requests[0].headers["authorization"] == "Bearer s3cret-key"
        folder = run_dir(tmp_path)
        resumed = await vfx("eval", "--resume", folder, cwd=tmp_path, env=env)
    assert "s3cret" not in done.stdout + done.stderr
    for path in folder.iterdir():
        assert b"s3cret" not in path.read_bytes(), path.name
    assert "JUDGE_KEY" in (folder / "config.toml").read_text()
    assert resumed.code == 2
    assert "taskset.task.judges[0].client.headers.X-Team: was masked when it was saved" in resumed.stderr
    assert "taskset.task.judges[0].client.base_url: was masked when it was saved" in resumed.stderr


async def test_validate_asks_no_judge(tmp_path: Path) -> None:
    (tmp_path / "capitals.py").write_text(CAPITALS)
    async with providers() as (_, judges):
        given = ("--taskset.task.judges", json.dumps([judge_of(judges)]))
        done = await vfx("validate", "capitals.py", *given, cwd=tmp_path)
        assert judges.requests == []
    assert done.code == 0, done.stderr + done.stdout
