"""Starting what a benchmark needs, and measuring what it cost."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Cost:
    """What a command took, in seconds."""

    wall: float
    cpu: float


@contextmanager
def provider(latency: float = 0.0) -> Generator[str]:
    """A loopback provider in a process of its own; gives its base URL."""
    program = [sys.executable, str(ROOT / "bench/provider.py"), str(latency)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
        child.stdin.close()


def measure(argv: Sequence[str], env: dict[str, str] | None = None, repeat: int = 1) -> tuple[Cost, str]:
    """Run a command to its end; the cheapest of `repeat` runs, and what that one wrote to stdout."""
    best: tuple[Cost, str] | None = None
    for _ in range(repeat):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if best is None or cpu < best[0].cpu:
            best = (Cost(wall, cpu), done.stdout)
    assert best is not None
    return best
