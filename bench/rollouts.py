"""Single-turn rollouts of `vfx eval` against a loopback provider without latency, start-up included.

The marginal cost of a rollout is what a run of N costs more than a run of one, divided by N - 1.
"""

import argparse
import json
import pstats
import sys
import tempfile
from pathlib import Path

from running import Cost, evaluation, measure, provider


def run(
    url: str, count: int, concurrent: int, folder: str, profile: Path | None = None
) -> tuple[Cost, dict[str, object]]:
    profiled = ["-m", "cProfile", "-o", str(profile)] if profile else []
    argv = [sys.executable, *profiled, "-m", *evaluation(url, count, concurrent, folder)]
    cost, out = measure(argv)
    return cost, json.loads(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="rollouts")
    parser.add_argument("-c", type=int, nargs="+", default=[1, 8, 64, 256], help="rollouts at the same time")
    parser.add_argument("--profile", action="store_true", help="under cProfile, with the first -c only")
    args = parser.parse_args()
    with provider() as url, tempfile.TemporaryDirectory() as folder:
        if args.profile:
            profile = Path(folder) / "profile"
            run(url, args.n, args.c[0], folder, profile)
            pstats.Stats(str(profile)).sort_stats("tottime").print_stats(45)
            return
        single, _ = run(url, 1, 1, folder)
        print(f"a run of one rollout: {single.wall:.2f} s wall, {single.cpu:.2f} s CPU")
        print(f"{'c':>5}{'rollouts':>10}{'wall s':>9}{'per s':>8}{'CPU ms each':>13}{'marginal ms':>13}{'scored':>8}")
        for concurrent in args.c:
            cost, summary = run(url, args.n, concurrent, folder)
            marginal = (cost.cpu - single.cpu) / (args.n - 1) * 1000
            print(
                f"{concurrent:>5}{args.n:>10}{cost.wall:>9.2f}{args.n / cost.wall:>8.0f}"
                f"{cost.cpu / args.n * 1000:>13.2f}{marginal:>13.2f}{summary['scored']:>8}"
            )


if __name__ == "__main__":
    main()
