"""What TAB offers, asked as the shell asks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment
from vfx.cli.completion import complete


def offered(line: str, cwd: Path) -> list[str]:
    """What bash gets for the last word of `line`, which is the one being typed."""
    words = line.split(" ")
    variables = {"_VFX_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = subprocess.run(
        [sys.executable, "-m", "vfx"], cwd=cwd, env=environment(variables), capture_output=True, text=True, timeout=30,
        check=True,
    )  # fmt: skip
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_commands(tmp_path: Path) -> None:
    assert offered("vfx va", tmp_path) == ["validate"]
    assert offered("vfx model st", tmp_path) == ["status"]


def test_environments_and_no_import_of_what_lies_around(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('imported', 'w').close()")
    offers = offered("vfx eval ", tmp_path)
    assert {"arithmetic", "reverse-text", "./mine.py"} <= set(offers)
    assert offered("vfx eval ./mine.py --taskset.system-prompt-f", tmp_path) == ["--taskset.system-prompt-file"]
    assert not (tmp_path / "imported").exists()


def test_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    code = """
        import sys
        from vfx.cli.completion import complete
        complete("eval", [], "--")
        print(sorted({"aiohttp", "rich", "uvicorn", "uvloop"} & set(sys.modules)))
    """
    import textwrap

    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ended.stdout == "[]\n"


def values(name: str, *words: str) -> list[str]:
    return [item.value for item in complete(name, words[:-1], words[-1])]


def test_options_with_dots() -> None:
    assert values("eval", "--timeout.s") == ["--timeout.setup", "--timeout.scoring"]
    assert values("eval", "--max_t") == ["--max-turns", "--max-total-tokens"]


def test_options_follow_the_variant_that_was_chosen() -> None:
    assert "--client.slots" not in values("eval", "--client.")
    assert "--client.slots" in values("eval", "--client.type", "local", "--client.")
    assert "--taskset.digits" in values("eval", "arithmetic", "--taskset.")


def test_values_of_choices() -> None:
    assert values("eval", "--client.type", "") == ["http", "local", "scripted"]
    assert values("eval", "--client.type", "=", "lo") == ["local"]
    assert "reverse-text" in values("eval", "--taskset.id", "")
    assert "chat" in values("eval", "--harness.id", "c")


def test_files_of_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/demo.toml").touch()
    (tmp_path / "run.toml").touch()
    (tmp_path / "run.txt").touch()
    assert values("eval", "@", "") == ["configs/", "run.toml"]
    assert values("eval", "@configs/") == ["@configs/demo.toml"]
    assert values("eval", "arithmetic", "@", "run.toml", "@", "nowhere/") == []
    assert values("eval", "@") == ["@configs/", "@run.toml"]
    monkeypatch.setenv("_VFX_COMPLETE", "complete_bash")
    assert values("eval", "@") == ["@"]


def test_where_file_names_are_best_nothing_is_offered() -> None:
    assert values("eval", "--output-dir", "") == []
    assert values("eval", "arithmetic", "") == []
    assert values("eval", "--no-shuffle", "arith") == ["arithmetic"]


def test_each_command_offers_its_own_options() -> None:
    assert "--model" in values("eval", "--")
    assert "--model" not in values("validate", "--")
    assert {"--taskset.id", "--json", "--num-tasks"} <= set(values("validate", "--"))
    assert {"--fail-under", "--replace"} <= set(values("replay", "--"))


def test_runs_are_offered_to_replay_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-000000-aaaaaaaa", "20260301-000000-bbbbbbbb"):
        folder = tmp_path / "outputs/env--m--chat" / name
        folder.mkdir(parents=True)
        (folder / "traces.jsonl").touch()
    offers = values("replay", "outputs/")
    assert [offer.rpartition("-")[2] for offer in offers] == ["bbbbbbbb", "aaaaaaaa"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself_completes(tmp_path: Path) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "vfx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vfx "$@"\n')
    (scripts / "vfx").chmod(0o755)
    code = """
        eval "$(_VFX_COMPLETE=source_bash vfx)"
        COMP_WORDS=(vfx eval --sampling.temp) COMP_CWORD=2
        $(complete -p vfx | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p') vfx
        echo "${COMPREPLY[@]}"
    """
    variables = environment({"PATH": f"{scripts}:/usr/bin:/bin"})
    bash = shutil.which("bash") or ""
    ended = subprocess.run(
        [bash, "--norc", "-c", code],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stdout == "--sampling.temperature\n", ended.stderr
