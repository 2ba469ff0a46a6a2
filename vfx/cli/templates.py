"""The files that `vfx init` writes, with `$name`, `$module`, `$taskset`, `$task` and `$version` to fill in."""

from collections.abc import Mapping

__all__ = ["PACKAGE", "SINGLE_FILE"]

_ENVIRONMENT = '''"""Letters to count: work with an answer that code can check. Put yours in its place."""

from collections.abc import Iterator

import vfx

__all__ = ["$taskset", "$task"]


class $task(vfx.Task):
    """One piece of work. Fields are its data and are stored with every rollout."""

    answer: int

    @vfx.reward
    def correct(self, trace: vfx.Trace) -> float:
        """1 when the reply holds the right number."""
        return float(self.answer in vfx.text.numbers(trace.last_reply))

    @vfx.metric
    def reply_chars(self, trace: vfx.Trace) -> float:
        """Length of the reply in characters."""
        return len(trace.last_reply)


class $taskset(vfx.Taskset[$task]):
    """How often a letter stands in a word. Fields are options: --taskset.letter e."""

    words: tuple[str, ...] = ("banana", "cabbage", "strawberry", "avocado", "apple")
    """The words."""
    letter: str = "a"
    """The letter to count."""

    def load(self) -> Iterator[$task]:
        """One task for each word."""
        for word in self.words:
            prompt = f"How often does the letter {self.letter} stand in {word}?"
            yield $task(prompt=prompt, answer=word.count(self.letter), id=word)
'''

_TEST = '''"""Runs without a model and without a network: the answers come from a script."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ENV = str(Path(__file__).resolve().parent.parent)


def vfx(*argv: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vfx", *argv]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def scripted_run(reply: str, cwd: Path) -> dict[str, Any]:
    script = ("--client.type", "scripted", "--client.replies", json.dumps([reply]))
    ended = vfx("eval", ENV, *script, "--json", cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_tasks_are_valid(tmp_path: Path) -> None:
    ended = vfx("validate", ENV, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_right_answers_are_rewarded_and_others_are_not(tmp_path: Path) -> None:
    # Of the five words, banana alone has three a's.
    assert scripted_run("3", tmp_path)["reward"]["mean"] == 0.2
    assert scripted_run("no idea", tmp_path)["reward"]["mean"] == 0.0
'''

_PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "An environment for vfx."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["vfx>=$version"]

[project.optional-dependencies]
dev = ["pytest"]

# What makes `vfx eval $name` find it once it is installed.
[project.entry-points."vfx.tasksets"]
$name = "$module:$taskset"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
"""

_README = """# $name

An environment for vfx: the work is in `src/$module/__init__.py`.

```sh
vfx eval . --client.type scripted    # tries it without a model; with one: vfx eval . -m MODEL
python -m pytest                     # its tests, offline
```

After `pip install -e .` it has a name: `vfx eval $name -m MODEL`.
"""

_IGNORED = """__pycache__/
*.egg-info/
dist/
outputs/
"""

PACKAGE: Mapping[str, str] = {
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    ".gitignore": _IGNORED,
    "src/$module/__init__.py": _ENVIRONMENT,
    "tests/test_$module.py": _TEST,
}
"""The files of a package, by their paths."""

SINGLE_FILE = _ENVIRONMENT
"""An environment in one file."""
