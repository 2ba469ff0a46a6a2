import tomllib
from pathlib import Path

import anyio.to_thread
import pytest

from tests.cli.test_main import vfx
from tests.support.provider import scripted_provider

MISSPELT = """
modle = "m"
base_url = "{intended}"
num_tasks = "5"

[taskset]
id = "reverse-text"
sise = 3

[sampling]
temprature = 0.5
"""


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.anyio
@pytest.mark.parametrize("switches", [(), ("--dry-run",)])
async def test_misspelt_and_misnested_keys_start_nothing(tmp_path: Path, switches: tuple[str, ...]) -> None:
    async with scripted_provider() as intended, scripted_provider() as vendor:
        (tmp_path / "run.toml").write_text(MISSPELT.format(intended=intended.base_url))

        def run() -> tuple[int, str, str]:
            ended = vfx(
                *("eval", "@", "run.toml", "--harness.rumtime.type=x", *switches),
                cwd=tmp_path,
                OPENAI_BASE_URL=vendor.base_url,
                OPENAI_API_KEY="not-needed",
            )
            return ended.returncode, ended.stdout, ended.stderr

        code, stdout, stderr = await anyio.to_thread.run_sync(run)
        assert (intended.requests, vendor.requests) == ([], [])
    assert (code, stdout) == (2, "")
    assert stderr.splitlines() == [
        "vfx: 7 mistakes:",
        "  run.toml: modle: unknown option (did you mean model?)",
        "  run.toml: base_url: unknown option (did you mean client.base_url?)",
        '  run.toml: num_tasks: expected a whole number or none, found text "5"',
        "  run.toml: taskset.sise: unknown option of taskset reverse-text (did you mean taskset.size?)",
        "  run.toml: sampling.temprature: unknown option (did you mean sampling.temperature?)",
        "  --harness.rumtime.type: unknown option of harness chat (did you mean --harness.runtime.type?)",
        "  -m: no model is named (name a model with -m, such as -m gpt-4.1-mini)",
    ]
    assert names(tmp_path) == ["run.toml"]


def test_a_dry_run_shows_the_source_of_each_value_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("num_rollouts = 2\n")
    ended = vfx("eval", "@", "run.toml", "-n", "3", "--dry-run", cwd=tmp_path, VFX_SEED="4")
    assert (ended.returncode, ended.stderr) == (0, "")
    sources = {line.split(" =")[0]: line.rpartition("# ")[2] for line in ended.stdout.splitlines() if "=" in line}
    assert (sources["num_tasks"], sources["num_rollouts"], sources["seed"]) == ("-n", "run.toml", "VFX_SEED")
    assert sources["max_concurrent"] == "default"
    assert 'type = "local"' in ended.stdout
    assert "# default of the demo" in ended.stdout
    assert tomllib.loads(ended.stdout)["num_tasks"] == 3
    assert names(tmp_path) == ["run.toml"]


def test_the_sources_of_a_dry_run_are_aligned(tmp_path: Path) -> None:
    lines = [line for line in vfx("eval", "--dry-run", cwd=tmp_path).stdout.splitlines() if "  # " in line]
    assert len({line.rindex("  # ") for line in lines}) == 1


def test_a_dry_run_shows_no_secret(tmp_path: Path) -> None:
    ended = vfx(
        *("eval", "-m", "m", "--dry-run", "--client.base-url", "https://user:secret-5@host/v1?key=secret-4"),
        *("--client.headers.Authorization", "Bearer secret-2", "--client.headers.X-Team", "env:TEAM"),
        cwd=tmp_path,
        OPENAI_API_KEY="secret-1",
        TEAM="secret-3",
    )
    assert ended.returncode == 0
    assert "secret" not in ended.stdout + ended.stderr
    assert 'base_url = "https://user:***@host/v1?key=***"' in ended.stdout
    assert 'X-Team = "env:TEAM"' in ended.stdout
    assert 'Authorization = "***"' in ended.stdout


def test_what_a_dry_run_prints_can_be_run(tmp_path: Path) -> None:
    options = ("--timeout.setup", "none", "--sampling.stop", 'a"b', "--interception.type", "static", "-m", "x")
    first = vfx("eval", *options, "--dry-run", cwd=tmp_path)
    (tmp_path / "again.toml").write_text(first.stdout)
    again = vfx("eval", "@", "again.toml", "--dry-run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert tomllib.loads(again.stdout) == tomllib.loads(first.stdout)


def test_a_run_that_was_saved_can_be_started_again(tmp_path: Path) -> None:
    first = vfx("eval", "-n", "2", "--client.type", "scripted", "--name", "a", "--timeout.setup=none", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (saved,) = tmp_path.glob("outputs/*/a/config.toml")
    again = vfx("eval", "@", str(saved), "--name", "b", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (second,) = tmp_path.glob("outputs/*/b/config.toml")
    assert second.read_text() == saved.read_text().replace('name = "a"', 'name = "b"')


def test_help_is_shown_whatever_else_is_typed(tmp_path: Path) -> None:
    ended = vfx("eval", "--help", "-n", "0", "--foo", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: vfx eval")


def test_help_for_an_environment_that_does_not_exist_says_so(tmp_path: Path) -> None:
    ended = vfx("eval", "arithmetik", "--help", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout.startswith("Usage: vfx eval")
    assert "did you mean arithmetic?" in ended.stderr


def test_an_environment_that_cannot_be_loaded_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = 1 / 0\n")
    ended = vfx("eval", "bad.py", "-m", "x", cwd=tmp_path)
    assert ended.returncode == 2
    assert "ZeroDivisionError: division by zero (line 2 of bad.py)" in ended.stderr
    assert "Traceback" not in ended.stderr
