"""Many rollouts in one run: memory, lag of the event loop, descriptors, and whether the summary is that of the records.

The run is carried out in this process, so that it can be looked into; the provider is another one.
"""

import argparse
import gc
import json
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from running import provider

from vfx.clients.base import HttpSettings
from vfx.harnesses.chat import Chat
from vfx.runner.config import EvalConfig
from vfx.runner.environment import Environment
from vfx.runner.evaluate import Run, evaluate
from vfx.runner.plan import make_plan
from vfx.runner.resume import prepare
from vfx.runner.rollout import Rollout
from vfx.runner.store import SUMMARY, TRACES
from vfx.runner.summary import Tally
from vfx.tasksets.arithmetic import Arithmetic
from vfx.trace.reading import read_lines, read_trace

PROBE_S = 0.005
POINTS = 20
"""Points of the memory curve."""
SCANS = 4
"""How often the living rollouts are counted; that holds up the loop, so the lag just after it is not counted."""
SCAN_SHADOW_S = 0.3


@dataclass
class Watch:
    """What was seen while the run went on."""

    lags: list[float] = field(default_factory=list[float])
    """Seconds by which a short sleep took longer than it should."""
    curve: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Rollouts done, and resident memory in MiB then."""
    peak_alive: int = 0
    planned: float = 0.0
    """Seconds until the tasks were loaded and the folder made."""
    first: float | None = None
    """Seconds until the first rollout had begun."""


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def nothing() -> None:
    """What a loop leaves open once for the whole process is no leak of a run."""


def alive() -> int:
    return sum(isinstance(thing, Rollout) for thing in gc.get_objects())


async def observe(run: Run, watch: Watch, started: float) -> None:
    step = max(1, len(run.plan) // POINTS)
    clear = 0.0
    while run.phase != "done":
        before = time.perf_counter()
        await anyio.sleep(PROBE_S)
        if run.phase == "running" and before > clear:
            watch.lags.append(time.perf_counter() - before - PROBE_S)
        if watch.first is None and run.running:
            watch.first = time.perf_counter() - started
        if run.tally.done >= len(watch.curve) * step:
            watch.curve.append((run.tally.done, resident()))
            if len(watch.curve) % (POINTS // SCANS) == 2:
                watch.peak_alive = max(watch.peak_alive, alive())
                clear = time.perf_counter() + SCAN_SHADOW_S


async def carry_out(environment: Environment, watch: Watch, started: float) -> Run:
    plan = make_plan(environment.config)
    store, earlier = prepare(environment, plan)
    watch.planned = time.perf_counter() - started
    run = Run(environment, plan, store, earlier)
    async with anyio.create_task_group() as group:
        group.start_soon(observe, run, watch, started)
        await evaluate(run)
    store.close()
    return run


def recount(folder: Path, run: Run) -> bool:
    """Whether the numbers of `summary.json` are those of the records."""
    tally = Tally(planned=run.tally.planned, rollouts_per_task=run.tally.rollouts_per_task)
    for _, line in read_lines(folder / TRACES):
        tally.add(read_trace(line))
    summary = json.loads((folder / SUMMARY).read_text())
    again = json.loads(json.dumps(tally.to_record()))
    wrong = [name for name, value in again.items() if summary[name] != value]
    for name in wrong:
        print(f"  {name}: {summary[name]} in the summary, {again[name]} from the records")
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, help="tasks")
    parser.add_argument("-c", type=int, default=256, help="rollouts at the same time")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds until the provider answers")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with provider(args.latency) as url, tempfile.TemporaryDirectory() as folder:
        anyio.run(nothing, backend_options={"use_uvloop": True})
        open_before = descriptors()
        started = time.perf_counter()
        config = EvalConfig(
            taskset=Arithmetic(id="arithmetic", digits=5, size=args.n),
            harness=Chat(id="chat"),
            client=HttpSettings(base_url=url, api_key_var=None),
            model="bench",
            max_concurrent=args.c,
            output_dir=Path(folder),
        )
        watch = Watch()
        run = anyio.run(carry_out, Environment(config), watch, started, backend_options={"use_uvloop": True})
        gc.collect()
        report(args.c, run, watch, descriptors() - open_before)
        print(f"summary equals the records: {'yes' if recount(run.folder, run) else 'NO'}")


def report(concurrent: int, run: Run, watch: Watch, left_open: int) -> None:
    lags = statistics.quantiles(watch.lags, n=1000)
    print(f"{len(run.plan)} rollouts, {concurrent} at a time: {run.seconds:.1f} s, {run.outcome().reason}")
    print(f"plan of all tasks {watch.planned:.2f} s, first rollout begun after {watch.first or 0:.2f} s")
    print("memory, MiB: " + "  ".join(f"{done}:{mib:.0f}" for done, mib in watch.curve))
    print(f"lag of the loop, ms: p50 {lags[499] * 1e3:.1f}  p99 {lags[989] * 1e3:.1f}  max {max(watch.lags) * 1e3:.1f}")
    print(f"most rollouts alive at a time: {watch.peak_alive}; descriptors left open: {left_open}")


if __name__ == "__main__":
    main()
