"""`-c auto` from outside: what it says, what it finds out, what it leaves alone."""

import json
import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.command import read_lines, run_dir, start_vfx, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio


LATENCY = 0.05


def on(provider: Provider) -> tuple[str, ...]:
    """Options for a run on a provider without a key."""
    return ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none")


async def test_it_grows_where_nothing_pushes_back(tmp_path: Path) -> None:
    # Long answers and few of them: what a busy machine adds must not look like a provider that queues.
    options = ("--client.type", "scripted", "--client.latency", "0.6", "-r", "3", "--log-level", "debug")
    done = await vfx("eval", "arithmetic", *options, "-c", "auto", "--display", "plain", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "60 rollouts, up to 1024 (auto) at a time" in done.stderr
    folder = run_dir(tmp_path)
    concurrency = json.loads((folder / "summary.json").read_text())["concurrency"]
    assert concurrency["mode"] == "auto"
    assert 16 < concurrency["peak"] <= concurrency["final"]
    assert f"0/auto {concurrency['final']} running" in done.stderr
    assert "16 rollouts at a time instead of 8: slow start" in (folder / "run.log").read_text()
    assert 'max_concurrent = "auto"' in (folder / "config.toml").read_text()


async def test_it_learns_the_limit_of_a_provider(tmp_path: Path) -> None:
    accepted: list[float] = []

    def answer(request: Request) -> Reply:
        if sum(request.arrived - at < LATENCY for at in accepted[-12:]) == 12:
            return Reply(429, {"retry-after-ms": "50"}, b'{"error": {"message": "slow down"}}')
        accepted.append(request.arrived)
        return completion("7", delay=LATENCY)

    async with scripted_provider(default=answer) as provider:
        done = await vfx("eval", "arithmetic", *on(provider), "-r", "15", "-c", "auto", cwd=tmp_path)
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert (done.code, summary["scored"]) == (0, 300)
    assert summary["concurrency"]["final"] <= 24
    assert 0 < len(provider.requests) - 300 < 60


async def test_injected_refusals_push_back_too(tmp_path: Path) -> None:
    options = ("--client.type", "scripted", "--client.chaos.429", "0.3", "--client.max-retry-wait", "0.05")
    done = await vfx("eval", "arithmetic", *options, "-r", "5", "-c", "auto", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert json.loads((run_dir(tmp_path) / "summary.json").read_text())["concurrency"]["final"] < 8


async def test_a_number_is_kept_to(tmp_path: Path) -> None:
    async with scripted_provider(default=completion("7", delay=0.02)) as provider:
        done = await vfx("eval", "arithmetic", *on(provider), "-c", "3", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert provider.peak == 3
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert summary["concurrency"] == {"mode": "fixed", "final": 3, "peak": 3}


async def test_an_interrupted_run_goes_on_with_another_number(tmp_path: Path) -> None:
    options = ("arithmetic", "--client.type", "scripted", "--client.latency", "0.2", "--name", "it", "-c", "auto")
    process = await start_vfx("eval", *options, "-r", "10", cwd=tmp_path)
    with anyio.fail_after(20):
        while not any(path.stat().st_size for path in tmp_path.glob("outputs/*/it/traces.jsonl")):
            await anyio.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait() == 130
    [traces] = tmp_path.glob("outputs/*/it/traces.jsonl")
    assert 0 < len(read_lines(traces)) < 200
    done = await vfx(
        "eval", *options[:-2], "-r", "10", "-c", "64", "--resume", traces.parent, "--client.latency", "0", cwd=tmp_path
    )
    assert done.code == 0, done.stderr
    assert len({(line["task"]["key"], line["rollout"]) for line in read_lines(traces)}) == 200


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "-c: expected at least 1, got 0"),
        ("many", '-c: expected a whole number or auto, found text "many"'),
        ("Auto", "did you mean auto?"),
        ("2.5", "-c: expected a whole number or auto"),
    ],
)
async def test_what_is_neither_is_a_mistake(tmp_path: Path, value: str, words: str) -> None:
    done = await vfx("eval", "arithmetic", "--client.type", "scripted", "-c", value, cwd=tmp_path)
    assert done.code == 2
    assert words in done.stderr


async def test_the_help_names_it(tmp_path: Path) -> None:
    done = await vfx("eval", "--help", cwd=tmp_path)
    assert "Rollouts at a time, or `auto`" in done.stdout
