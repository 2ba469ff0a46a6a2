"""The table of what vfx costs beside its peers and beside the least that the work takes, all measured in one run.

Read the CPU figures: a busy machine delays wall times severalfold. CPU is that of the process under test alone; the
provider and the callers are processes of their own. Cases are measured in turns, ours and the others' one after the
other, and the cheapest round counts. `--growth` shows instead how our costs grow.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running import BENCH, Cost, Endpoint, cpu_until_call, endpoint, evaluation, interception, load, measure, provider

PEERS = {"verifiers": ("verifiers==0.4.0", "uv"), "inspect": ("inspect-ai==0.3.285", "openai")}
ENVIRONMENTS = BENCH / ".peers"
NOT_INSTALLED = "not installed: --install-peers"
TASKS = 1000
SESSIONS = 2000
FIRST_S, GAP_S, EVENTS = 0.3, 0.02, 20
ONE_CALL = [sys.executable, "-S", "-E", str(BENCH / "peers/one_call.py")]


@dataclass
class Row:
    """One line of the table."""

    what: str
    unit: str
    aim: str
    figures: dict[str, float] = field(default_factory=dict[str, float])
    """By who was measured: `ours`, `floor`, or the name of a peer."""


@dataclass(frozen=True)
class Peer:
    """Someone else's command for the same work."""

    name: str
    program: Path
    """Its interpreter."""
    help: Sequence[str]
    evaluate: Callable[[str, int, int, str], tuple[list[str], dict[str, str]]]
    """Gives command and environment for a provider, a count of tasks, so many at a time, and a folder."""


def verifiers(url: str, count: int, concurrent: int, folder: str) -> tuple[list[str], dict[str, str]]:
    command = ["vf-eval", "bench_echo", "-n", str(count), "-c", str(concurrent), "-m", "bench", "-o", folder]
    command += ["--env.agent.harness.id", "bench_call", "--env.agent.runtime.type", "subprocess", "--no-push"]
    command += ["--client.base-url", url, "--client.api-key-var", "BENCH_KEY", "--no-rich"]
    return command, {}


def inspect(url: str, count: int, concurrent: int, folder: str) -> tuple[list[str], dict[str, str]]:
    command = ["inspect", "eval", "inspect_echo.py", "--model", "openai/bench", "--display", "none"]
    command += ["-M", "responses_api=false"]
    command += ["--max-connections", str(concurrent), "--log-dir", folder]
    return command, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"}


def ours(url: str, count: int, concurrent: int, folder: str, program: Sequence[str] = ()) -> list[str]:
    harness = {"harness.id": "command", "harness.argv": json.dumps(list(program))} if program else {}
    return [sys.executable, "-m", *evaluation(url, count, concurrent, folder, **harness)]


def known_peers(names: Sequence[str]) -> list[Peer]:
    all_peers = {
        "verifiers": Peer("verifiers", ENVIRONMENTS / "verifiers/bin/python", ["vf-eval", "--help"], verifiers),
        "inspect": Peer("inspect", ENVIRONMENTS / "inspect/bin/python", ["inspect", "eval", "--help"], inspect),
    }
    return [all_peers[name] for name in names if all_peers[name].program.exists()]


def install(names: Sequence[str]) -> None:
    """Give each peer an environment of its own."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    for name in names:
        folder = ENVIRONMENTS / name
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "uvloop", *PEERS[name]], check=True)


def peer_command(peer: Peer, command: Sequence[str], extra: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    folder = peer.program.parent
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    common = {"PATH": path, "PYTHONPATH": str(BENCH / "peers"), "BENCH_KEY": "x", "BENCH_TASKS": "1"}
    return [str(folder / command[0]), *command[1:]], common | extra


def starts(peers: Sequence[Peer], _: int) -> Iterator[Row]:
    """What a command costs before it does anything."""
    row = Row("`--help`", "s CPU", "0.15")
    row.figures["ours"] = measure([sys.executable, "-m", "vfx", "--help"], repeat=5)[0].cpu
    row.figures["floor"] = measure([sys.executable, "-c", "pass"], repeat=5)[0].cpu
    for peer in peers:
        argv, env = peer_command(peer, peer.help, {})
        row.figures[peer.name] = measure(argv, env, repeat=2)[0].cpu
    yield row
    row = Row("start of a run until its first model call", "s CPU", "0.5")
    with tempfile.TemporaryDirectory() as folder:
        asked = "import httpx, sys; httpx.get(sys.argv[1])"
        floor = lambda url: ([sys.executable, "-c", asked, url], {})  # noqa: E731
        row.figures["floor"] = min(cpu_until_call(floor) for _ in range(3))
        row.figures["ours"] = min(cpu_until_call(lambda url: (ours(url, 1, 1, folder), {})) for _ in range(3))
        for peer in peers:
            row.figures[peer.name] = cpu_until_call(
                lambda url, peer=peer: peer_command(peer, *peer.evaluate(url, 1, 1, folder)), cwd=BENCH / "peers"
            )
    yield row


def rollouts(peers: Sequence[Peer], _: int) -> Iterator[Row]:
    """Whole runs, at 64 at a time."""
    rate = Row(f"single-turn rollouts, {TASKS} tasks at 64, start-up included", "per s", "300")
    marginal = Row("one such rollout, marginal", "ms CPU", "2.5")
    spawned = Row("a rollout whose harness is a small program, marginal", "ms CPU", "15")
    with provider() as url, tempfile.TemporaryDirectory() as folder:

        def run(name: str, of: Callable[[int], tuple[list[str], dict[str, str]]], count: int) -> tuple[float, Cost]:
            single, _ = measure(*of(1), cwd=BENCH / "peers")
            cost, _ = measure(*of(count), cwd=BENCH / "peers")
            return (cost.cpu - single.cpu) / (count - 1) * 1000, cost

        def of_peer(peer: Peer, extra: Mapping[str, str]) -> Callable[[int], tuple[list[str], dict[str, str]]]:
            def command(count: int) -> tuple[list[str], dict[str, str]]:
                argv, env = peer.evaluate(url, count, 64, tempfile.mkdtemp(dir=folder))
                return peer_command(peer, argv, {"BENCH_TASKS": str(count), **env, **extra})

            return command

        marginal.figures["ours"], cost = run("ours", lambda count: (ours(url, count, 64, folder), {}), TASKS)
        rate.figures["ours"] = TASKS / cost.wall
        spawned.figures["ours"], _ = run("ours", lambda count: (ours(url, count, 64, folder, ONE_CALL), {}), 200)
        for peer in peers:
            marginal.figures[peer.name], cost = run(peer.name, of_peer(peer, {}), TASKS)
            rate.figures[peer.name] = TASKS / cost.wall
            if peer.name == "verifiers":
                spawned.figures[peer.name], _ = run(peer.name, of_peer(peer, {"BENCH_CHILD": "1"}), 200)
        loop = f"import subprocess\nfor _ in range(100): subprocess.run({ONE_CALL!r}, check=True)"
        bare, _ = measure([sys.executable, "-c", loop], {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"})
        spawned.figures["floor"] = bare.cpu / 100 * 1000
    yield from (rate, marginal, spawned)


CALLS: Sequence[tuple[str, str, str, str, dict[str, float | bool]]] = (
    ("interception, 1 kB call, 1 caller", "cpu_ms", "ms CPU", "0.4", {"callers": 1, "calls": 2000}),
    ("interception, 1 kB call, 32 callers", "cpu_ms", "ms CPU", "0.25", {"callers": 32, "calls": 4000}),
    ("interception, 1 kB call, 256 callers", "cpu_ms", "ms CPU", "0.25", {"callers": 256, "calls": 4000}),
    ("the same, 99th percentile", "p99_ms", "ms", "100", {"callers": 256, "calls": 4000}),
    ("1 kB call, streamed, 1 caller", "cpu_ms", "ms CPU", "—", {"callers": 1, "calls": 2000, "stream": True}),
    ("1 kB call, streamed, 32 callers", "cpu_ms", "ms CPU", "—", {"callers": 32, "calls": 3000, "stream": True}),
    ("1 kB call, streamed, 256 callers", "cpu_ms", "ms CPU", "—", {"callers": 256, "calls": 3000, "stream": True}),
    ("256 kB bodies, 32 callers", "per_s", "per s", "500", {"callers": 32, "calls": 640, "bytes": 262144}),
    ("the same, each", "cpu_ms", "ms CPU", "—", {"callers": 32, "calls": 640, "bytes": 262144}),
    ("turn 800 of one conversation (176 kB)", "800", "ms CPU", "3", {"turns": 800, "bytes": 100}),
)
SLOWER = 4
"""How many times fewer calls a peer gets, so that the table is done while one waits."""


def calls(peers: Sequence[Peer], rounds: int) -> Iterator[Row]:
    """Calls through interceptions that stand beside each other."""
    with ExitStack() as stack:
        url = stack.enter_context(provider())
        served = _served(stack, url, peers)
        yield Row("memory of an idle session", "KiB", "5", {name: each.session_kib for name, each in served.items()})
        measured: dict[tuple[str, str], dict[str, Any]] = {}
        for what, figure, unit, aim, options in CALLS:
            row = Row(what, unit, aim)
            for name, each in served.items():
                if name == "floor" and options.get("stream"):
                    continue
                key = name, repr(options)
                if key not in measured:
                    measured[key] = _best(each, options, rounds, is_peer=name not in ("ours", "floor"))
                row.figures[name] = measured[key][figure]
            yield row
    with ExitStack() as stack:
        url = stack.enter_context(provider(FIRST_S, GAP_S, EVENTS))
        served = _served(stack, url, [peer for peer in peers if peer.name == "verifiers"])
        direct = Endpoint(f"{url}/chat/completions", os.getpid(), served["ours"].keys)
        # Callers that begin together would wait for each other, which programs do not.
        spread = FIRST_S + GAP_S * EVENTS
        firsts = {
            name: load(each, callers=32, calls=320, stream=True, spread=spread)["first_ms"]
            for name, each in {"direct": direct, **served}.items()
            if name != "floor"
        }
        before = firsts.pop("direct")
        added = {name: each - before for name, each in firsts.items()}
        yield Row("first streamed byte, added, 32 callers", "ms", "1", {**added, "floor": 0.0})


def _served(stack: ExitStack, url: str, peers: Sequence[Peer]) -> dict[str, Endpoint]:
    served = {
        "ours": stack.enter_context(interception(url, SESSIONS)),
        "floor": stack.enter_context(endpoint(sys.executable, BENCH / "floor.py", url, SESSIONS)),
    }
    for peer in peers:
        if peer.name == "verifiers":
            script = [peer.program, BENCH / "peers/verifiers_parts.py", "serve", url, SESSIONS]
            served[peer.name] = stack.enter_context(endpoint(*script))
    return served


def _best(to: Endpoint, options: Mapping[str, float | bool], rounds: int, *, is_peer: bool) -> dict[str, Any]:
    given = dict(options)
    if is_peer and "calls" in given:
        given["calls"] = max(int(given["calls"]) // SLOWER, int(given["callers"]) * 2)
    results = [load(to, **given) for _ in range(1 if is_peer else rounds)]
    return min(results, key=lambda result: result.get("cpu_ms", result.get("800", 0.0)))


def parts(peers: Sequence[Peer], _: int) -> Iterator[Row]:
    """What needs no provider."""
    for what, unit, aim, script, part, floor in (
        ("64 acquires, 4 on each server, a tunnel of 0.5 s", "s", "0.6", "acquires.py", "acquire", 0.5),
        ("loop stands still, appending a trace of 800 turns", "ms", "5", "appending.py", "append", None),
    ):
        row = Row(what, unit, aim)
        row.figures["ours"] = float(measure([sys.executable, str(BENCH / script), "--brief"])[1])
        if floor is not None:
            row.figures["floor"] = floor
        for peer in peers:
            if peer.name == "verifiers":
                argv = [str(peer.program), str(BENCH / "peers/verifiers_parts.py"), part]
                row.figures[peer.name] = float(measure(argv)[1])
        yield row


GROUPS = {"starts": starts, "rollouts": rollouts, "calls": calls, "parts": parts}


def growth() -> None:
    """How our costs grow."""
    with provider() as url:
        with interception(url, SESSIONS) as served:
            for callers in (1, 4, 16, 64, 256):
                result = load(served, callers=callers, calls=3000)
                print(f"{callers:>9} callers{result['cpu_ms']:>10.3f} ms CPU a call", flush=True)
            for turn, cost in load(served, turns=800, bytes=100).items():
                print(f"{turn:>9} turns  {cost:>10.3f} ms CPU a turn", flush=True)
            for size in (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
                result = load(served, callers=4, calls=max(16, min(2000, (1 << 27) // size)), bytes=size)
                print(f"{size >> 10:>9} KiB    {result['cpu_ms']:>10.3f} ms CPU a call", flush=True)
        for sessions in (1, 100, 1000, 10_000):
            with interception(url, sessions) as served:
                result = load(served, callers=32, calls=3000)
                kib = f"{served.session_kib:.1f} KiB each" if sessions >= 100 else ""
                print(f"{sessions:>9} sessions{result['cpu_ms']:>9.3f} ms CPU a call {kib}", flush=True)


def show(row: Row, names: Sequence[str], wanted: Sequence[str]) -> None:
    mine, cells = row.figures.get("ours"), [row.what, row.unit]
    for name in ("ours", *wanted, "floor"):
        figure = row.figures.get(name)
        is_missing = name in wanted and name not in names
        cells.append(NOT_INSTALLED if is_missing else "—" if figure is None else f"{figure:.3g}")
    others = [figure for name, figure in row.figures.items() if name in wanted]
    best = max(others) if row.unit == "per s" and others else min(others, default=None)
    ratio = None if best is None or not mine else mine / best if row.unit == "per s" else best / mine
    cells += ["—" if ratio is None else f"{ratio:.1f} times", row.aim]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="whom to measure beside vfx")
    parser.add_argument("--install-peers", action="store_true", help="first install them, each by itself (1 GB)")
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=list(GROUPS), help="groups of rows")
    parser.add_argument("--rounds", type=int, default=2, help="of each load, of which the cheapest counts")
    parser.add_argument("--growth", action="store_true", help="show how our costs grow instead")
    args = parser.parse_args()
    if args.growth:
        growth()
        return
    if args.install_peers:
        install(args.peers)
    peers = known_peers(args.peers)
    names = [peer.name for peer in peers]
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | unit | ours | " + " | ".join(args.peers) + " | floor | best peer to ours | aim |")
    print("|---|---|" + "---|" * (len(args.peers) + 4))
    for group in args.only:
        for row in GROUPS[group](peers, args.rounds):
            show(row, names, args.peers)


if __name__ == "__main__":
    main()
