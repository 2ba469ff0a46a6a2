"""Running the command as a user does: in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

__all__ = ["Done", "environment", "read_lines", "run_dir", "start_vfx", "vfx"]

TIMEOUT_S = 45


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: no keys and options of whoever runs the tests, no colours, no width."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VFX_", "OPENAI_", "HTTP"))}
    return {**kept, "TERM": "dumb", "PYTHONWARNINGS": "default", **(extra or {})}


async def start_vfx(*args: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start `vfx` in folder `cwd`, with its output in pipes."""
    return await anyio.open_process(
        [sys.executable, "-m", "vfx", *map(str, args)],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


async def vfx(*args: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Run `vfx` in folder `cwd` to its end."""
    with anyio.fail_after(TIMEOUT_S):
        done = await anyio.run_process(
            [sys.executable, "-m", "vfx", *map(str, args)],
            cwd=cwd,
            env=environment(env),
            check=False,
            stdin=subprocess.DEVNULL,
        )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_dir(cwd: Path) -> Path:
    """The one run folder below `cwd`."""
    [folder] = (path.parent for path in cwd.glob("outputs/*/*/config.toml"))
    return folder


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file, split on the newline byte only; a file that doesn't end in one is refused."""
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b"", "the last line is torn"
    return [json.loads(line, parse_constant=_refuse) for line in lines]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not strict JSON")
