"""Starting what a benchmark needs, and measuring what it cost."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

BENCH = Path(__file__).parent
ROOT = BENCH.parent


@dataclass(frozen=True)
class Cost:
    """What a command took, in seconds."""

    wall: float
    cpu: float


@contextmanager
def child(*argv: object, env: Mapping[str, str] | None = None) -> Generator[IO[str]]:
    """A process that serves until its stdin is closed; gives what it prints."""
    environment = {**os.environ, **(env or {})}
    with subprocess.Popen(
        list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.stdin.close()


@contextmanager
def provider(*args: float) -> Generator[str]:
    """A loopback provider in a process of its own; gives its base URL. For `args` see its module."""
    with child(sys.executable, BENCH / "provider.py", *args) as out:
        yield f"http://127.0.0.1:{int(out.readline())}/v1"


def evaluation(url: str, count: int, concurrent: int | str, folder: str | Path, **more: object) -> list[str]:
    """Our command for `count` single-turn rollouts against a provider; `more` are options."""
    options = {
        "taskset.size": count,
        "taskset.digits": 4,
        "max-concurrent": concurrent,
        "model": "bench",
        "client.base-url": url,
        "client.api-key-var": "none",
        "output-dir": folder,
        "display": "none",
        **more,
    }
    words = (str(word) for name, value in options.items() for word in (f"--{name}", value))
    return ["vfx", "eval", "arithmetic", "--json", *words]


@dataclass(frozen=True)
class Endpoint:
    """A process that takes model calls."""

    url: str
    pid: int
    keys: str
    session_kib: float = 0.0


@contextmanager
def endpoint(*argv: object, env: Mapping[str, str] | None = None) -> Generator[Endpoint]:
    """A process that tells of its endpoint in a line of JSON."""
    with child(*argv, env=env) as out:
        yield Endpoint(**json.loads(out.readline()))


@contextmanager
def interception(provider_url: str, sessions: int = 2000) -> Generator[Endpoint]:
    """Our interception before a provider."""
    with endpoint(sys.executable, BENCH / "serving.py", provider_url, sessions) as served:
        yield served


def load(to: Endpoint, **options: float | bool) -> dict[str, Any]:
    """Calls from another process; for the options and what it gives see `load.py`."""
    argv = [sys.executable, str(BENCH / "load.py"), to.url, "--pid", str(to.pid), "--keys", to.keys]
    for name, value in options.items():
        argv += [f"--{name}"] if value is True else [] if value is False else [f"--{name}", str(value)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure(
    argv: Sequence[str], env: Mapping[str, str] | None = None, repeat: int = 1, cwd: Path | None = None
) -> tuple[Cost, str]:
    """Run a command to its end; the cheapest of `repeat` runs, and what that one wrote to stdout."""
    best: tuple[Cost, str] | None = None
    for _ in range(repeat):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, **(env or {})}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=cwd, check=False)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if best is None or cpu < best[0].cpu:
            best = (Cost(wall, cpu), done.stdout)
    assert best is not None
    return best


def cpu_until_call(command: Callable[[str], tuple[Sequence[str], Mapping[str, str]]], cwd: Path | None = None) -> float:
    """CPU seconds of a command, given the URL of a provider, until that provider has its first request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        argv, env = command(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        with subprocess.Popen(
            argv, env={**os.environ, **env}, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                process.kill()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
