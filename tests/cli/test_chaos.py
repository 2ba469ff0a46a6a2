"""`--client.chaos` from outside: a run with a few faults comes through, and what it met is told apart."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Done, read_lines, run_dir, vfx
from tests.support.provider import scripted_provider

pytestmark = pytest.mark.anyio

SCRIPTED = ("arithmetic", "--client.type", "scripted", "--client.max-retry-wait", "0.05")
MARK = "injected by --client.chaos"


async def run(cwd: Path, *options: str, code: int = 0) -> Done:
    done = await vfx("eval", *SCRIPTED, *options, cwd=cwd)
    assert done.code == code, done.stderr
    return done


def notes(cwd: Path) -> dict[tuple[str, int], list[list[str]]]:
    """What each call of each rollout met."""
    records = read_lines(run_dir(cwd) / "traces.jsonl")
    return {
        (record["task"]["key"], record["rollout"]): [call["notes"] for call in record["calls"]] for record in records
    }


async def test_a_run_with_a_few_faults_finishes_and_counts_them(tmp_path: Path) -> None:
    done = await run(tmp_path, "-r", "4", "--client.chaos", '{"429": 0.1, "cut": 0.05, "refused": 0.05}')
    assert "80 scored  0 errored" in done.stdout
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    faults = summary["injected_faults"]
    assert set(faults) == {"429", "cut", "refused"}
    assert summary["retries"] == sum(faults.values())
    noted = Counter(note for calls in notes(tmp_path).values() for call in calls for note in call)
    assert noted == {f"{kind} {MARK}": count for kind, count in faults.items()}
    shown = "  ".join(f"{faults[kind]} {kind}" for kind in sorted(faults))
    assert f"chaos       {shown}  {MARK}" in done.stdout


async def test_the_same_seed_gives_the_same_faults_whatever_runs_at_the_same_time(tmp_path: Path) -> None:
    met: list[dict[Any, Any]] = []
    for name, seed, concurrent in (("a", "5", "1"), ("b", "5", "20"), ("c", "6", "20")):
        (tmp_path / name).mkdir()
        chaos = ("--client.chaos.429", "0.2", "--client.chaos.503", "0.2", "--client.chaos-seed", seed)
        await run(tmp_path / name, *chaos, "-c", concurrent)
        met.append(notes(tmp_path / name))
    assert met[0] == met[1] != met[2]


async def test_an_injected_refusal_is_no_reason_to_stop_and_is_not_the_provider_s(tmp_path: Path) -> None:
    done = await run(tmp_path, "--client.chaos.401", "1", code=1)
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert (summary["errored"], summary["exit_reason"]) == (20, "nothing was scored")
    [cause] = summary["error_causes"]
    assert cause["pattern"] == f"HTTP 401 {MARK}"
    assert "no fault of the provider" in cause["advice"]
    assert "--client.api-key-var" not in done.stdout


async def test_faults_apart_from_the_provider_s_own(tmp_path: Path) -> None:
    async with scripted_provider() as provider:
        closed = provider.base_url
    options = ("--client.base-url", closed, "--client.api-key-var", "none", "-m", "m", "--client.max-retries", "0")
    done = await vfx("eval", "arithmetic", *options, "--client.chaos.503", "0.5", "-c", "1", cwd=tmp_path)
    assert done.code == 1
    causes = json.loads((run_dir(tmp_path) / "summary.json").read_text())["error_causes"]
    assert len(causes) == 2
    assert {MARK in cause["pattern"] for cause in causes} == {True, False}


async def test_a_cut_stream_is_a_failed_call_and_a_broken_stream_for_the_program(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        """
import json, os, sys, urllib.request
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "one two three"}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
try:
    with urllib.request.urlopen(request) as response:
        read = response.read()
except Exception as error:
    sys.exit(f"broken: {type(error).__name__}")
"""
    )
    options = ("--harness.id", "command", "--harness.argv", json.dumps(["python3", str(program)]), "-n", "2")
    done = await run(tmp_path, *options, "--client.chaos.cut", "1", code=1)
    assert "provider stream incomplete: cut" in done.stdout
    for record in read_lines(run_dir(tmp_path) / "traces.jsonl"):
        [call] = record["calls"]
        assert call["nodes"] == []
        assert call["error"]["message"] == f"provider stream incomplete: cut, {MARK}"
        assert call["notes"] == [f"cut {MARK}"]
        assert "broken: IncompleteRead" in json.dumps(record["errors"]) or record["errors"][0]["kind"] == "provider"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--client.chaos.slow2", "0.1"), "there is no fault 'slow2'"),
        (("--client.chaos.429", "2"), "the share of 429 is 2"),
        (("--client.chaos", '{"429": 0.6, "cut": 0.6}'), "the shares add up to 1.2"),
        (("--client.chaos.cut", "often"), "expected a number"),
    ],
)
async def test_a_mistake_is_told_before_anything_starts(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = await run(tmp_path, *options, code=2)
    assert words in done.stderr
    assert not (tmp_path / "outputs").exists()


async def test_faults_come_from_files_and_variables_too(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[client.chaos]\n429 = 0.5\ncut = 0.1\n")
    done = await vfx(
        "eval", *SCRIPTED, "@", "a.toml", "--dry-run", cwd=tmp_path, env={"VFX_CLIENT__CHAOS__429": "0.25"}
    )
    assert "429 = 0.25" in done.stdout
    assert "cut = 0.1" in done.stdout
