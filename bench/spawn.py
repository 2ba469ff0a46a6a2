"""What a program costs: rollouts of `vfx eval` whose harness starts `/bin/true`, a bare interpreter, or one that asks.

The marginal cost of a rollout is what a run of N costs more than a run of one, divided by N - 1. CPU is that of vfx and
all its children; the last line runs the same bare interpreters without vfx.
"""

import argparse
import json
import sys
import tempfile

from running import ROOT, evaluation, measure, provider

ASK = "from program import ask; ask('hi')"
SDK = "import openai; openai.OpenAI().chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'hi'}])"
BARE = [sys.executable, "-S", "-E", "-c", "pass"]
PROGRAMS = {
    "/bin/true": ["/bin/true"],
    "python -S -E": BARE,
    "python, program.ask": [sys.executable, "-S", "-c", ASK],
    "python, openai SDK": [sys.executable, "-c", SDK],
}


def run(url: str, count: int, concurrent: int, folder: str, program: list[str]) -> tuple[float, float, dict[str, int]]:
    harness = {"harness.id": "command", "harness.argv": json.dumps(program)}
    path = {"harness.variables.PYTHONPATH": ROOT / "vfx/harnesses"}
    argv = [sys.executable, "-m", *evaluation(url, count, concurrent, folder, **harness, **path)]
    cost, out = measure(argv)
    return cost.wall, cost.cpu, json.loads(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=200, help="rollouts")
    parser.add_argument("-c", type=int, default=32, help="rollouts at the same time")
    parser.add_argument("--only", choices=PROGRAMS, help="one of the programs")
    args = parser.parse_args()
    print(f"{args.n} rollouts at {args.c}")
    print(f"{'program':<22}{'wall s':>9}{'per s':>8}{'CPU ms each':>13}{'marginal ms':>13}{'scored':>8}{'turns':>8}")
    with provider() as url, tempfile.TemporaryDirectory() as folder:
        for name, program in PROGRAMS.items():
            if args.only in (None, name):
                _, single, _ = run(url, 1, 1, folder, program)
                wall, cpu, summary = run(url, args.n, args.c, folder, program)
                marginal = (cpu - single) / (args.n - 1) * 1000
                each = cpu / args.n * 1000
                print(
                    f"{name:<22}{wall:>9.2f}{args.n / wall:>8.0f}{each:>13.2f}{marginal:>13.2f}"
                    f"{summary['scored']:>8}{summary['turns']:>8}"
                )
        loop = f"import subprocess\nfor _ in range({args.n}): subprocess.run({BARE!r})"
        cost, _ = measure([sys.executable, "-c", loop])
        print(f"{'without vfx':<22}{cost.wall:>9.2f}{args.n / cost.wall:>8.0f}{cost.cpu / args.n * 1000:>13.2f}")


if __name__ == "__main__":
    main()
