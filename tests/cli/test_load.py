"""Many rollouts at once (B11): none fails for want of connections, descriptors or time."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.command import environment, read_lines, run_dir, vfx
from tests.support.provider import completion, scripted_provider

pytestmark = pytest.mark.anyio


async def test_a_thousand_at_once(tmp_path: Path) -> None:
    async with scripted_provider(default=completion(delay=2)) as provider:
        options = ("-m", "m", "--client.base-url", provider.base_url, "--client.api-key-var", "none", "--json")
        tasks = ("--taskset.digits", "3", "--taskset.size", "1000", "-c", "1000")
        done = await vfx("eval", "arithmetic", *options, *tasks, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert (done.json["scored"], done.json["errored"]) == (1000, 0)
    assert provider.peak > 300


async def test_few_descriptors_mean_fewer_rollouts_at_a_time_and_no_errors(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "vfx",
        "eval",
        "arithmetic",
        "--client.type",
        "scripted",
        "--client.latency",
        "0.1",
    ]
    command += ["--taskset.digits", "3", "--taskset.size", "200", "-c", "200"]
    with anyio.fail_after(30):
        done = await anyio.run_process(
            ["sh", "-c", f"ulimit -n 256 && exec {shlex.join(command)}"],
            cwd=tmp_path,
            env=environment(),
            check=False,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stderr
    assert b"24 rollouts at a time instead of 200: 256 open files are allowed here (ulimit -n)" in done.stderr
    assert len(read_lines(run_dir(tmp_path) / "traces.jsonl")) == 200
    assert "max_concurrent = 200\n" in (run_dir(tmp_path) / "config.toml").read_text()
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert summary["concurrency"]["peak"] == 24
