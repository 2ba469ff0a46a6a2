"""The summary of a run as people read it, from the record that `summary.json` keeps. Fits 80 columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vfx.dashboard.words import one_line, short_duration, wrapped

__all__ = ["summary_lines"]

LABEL_WIDTH = 12
WIDTH = 80
MAX_CAUSES = 5
EXAMPLE_CHARS = 200
NAME_CHARS = 30
ASK_FOR_USAGE = "a program that streams gets counts with stream_options.include_usage"


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The lines to print, without colour."""
    parts = (_counts, _errors, _rewards, _costs, _times, _ending)
    return ["", *(line for part in parts for line in part(summary))]


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _wrapped(label: str, text: str, indent: int = 0) -> Iterator[str]:
    for line in wrapped(text, WIDTH - LABEL_WIDTH - indent):
        yield _line(label, " " * indent + line)
        label = ""


def _counts(summary: Mapping[str, Any]) -> Iterator[str]:
    yield _line("run", f"{summary['environment']}  model {summary['model']}  harness {summary['harness']}")
    counts = f"{summary['planned']} planned  {summary['scored']} scored  {summary['errored']} errored"
    yield _line("rollouts", f"{counts}  {summary['interrupted']} interrupted")
    if summary["stop_conditions"]:
        stops = "  ".join(f"{name} {count}" for name, count in summary["stop_conditions"].items())
        yield from _wrapped("stopped by", stops)


def _errors(summary: Mapping[str, Any]) -> Iterator[str]:
    """Each cause with one example and what helps against it."""
    causes: Sequence[Mapping[str, Any]] = summary["error_causes"]
    label = "errors"
    for cause in causes[:MAX_CAUSES]:
        kind = cause["kind"]
        example = one_line(cause["example"].removeprefix(f"{kind}: "), EXAMPLE_CHARS)
        yield from _wrapped(label, f"{cause['count']} x {kind}: {example}")
        label = ""
        helps = f"; try {cause['advice']}" if cause["advice"] else ""
        yield from _wrapped("", f"such as {one_line(cause['task'], NAME_CHARS)}{helps}", indent=4)
    if len(causes) > MAX_CAUSES:
        others = causes[MAX_CAUSES:]
        rest = sum(cause["count"] for cause in others)
        yield _line("", f"{rest} with {len(others)} other causes: error_causes in summary.json")


def _rewards(summary: Mapping[str, Any]) -> Iterator[str]:
    reward = summary["reward"]
    yield _line("reward", f"{_estimate(reward)}  mean over {summary['scored']} scored")
    if summary["errored"]:
        yield _line("", f"{_number(reward['mean_errored_as_zero'])}  mean with {summary['errored']} errored as 0")
    yield from _passes(reward)
    for name, estimate in summary["rewards"].items():
        if len(summary["rewards"]) > 1:
            yield _line("", f"{_estimate(estimate)}  {one_line(name, NAME_CHARS)}")
            yield from _passes(estimate, indent=4)
    label = "metric"
    for name, estimate in summary["metrics"].items():
        yield _line(label, f"{_estimate(estimate)}  {one_line(name, NAME_CHARS)}")
        label = ""


def _passes(estimate: Mapping[str, Any], indent: int = 0) -> Iterator[str]:
    chances = {k: chance for k, chance in estimate["pass_at_k"].items() if chance is not None}
    # pass@1 alone is the mean once more.
    if chances.keys() - {"1"}:
        text = "  ".join(f"pass@{k} {_number(chance)}" for k, chance in chances.items())
        yield from _wrapped("", text, indent)


def _estimate(estimate: Mapping[str, Any]) -> str:
    text = _number(estimate["mean"])
    if estimate["interval_95"] is None:
        return text
    low, high = estimate["interval_95"]
    return f"{text}  (95 % {_number(low)} to {_number(high)})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _costs(summary: Mapping[str, Any]) -> Iterator[str]:
    usage, turns = summary["usage"], summary["turns"]
    yield _line("tokens", f"{_tokens(usage)}  in {turns} turns" if turns else "none, there was no turn")
    distinct = usage["distinct_input_tokens"]
    if distinct is not None and usage["input_tokens"] and distinct < usage["input_tokens"]:
        yield _line("", f"{distinct:,} in are distinct, the rest is conversation sent again")
    if usage["turns_without_usage"]:
        text = f"{usage['turns_without_usage']} turns without a count ({ASK_FOR_USAGE})"
        yield from _wrapped("", text)
    for purpose, usage in summary["side_usage"].items():
        yield from _side_cost(purpose, usage)
    if summary["failed_calls"] or summary["retries"]:
        failed = summary["failed_usage"]
        billed = f", billed {_tokens(failed)}" if failed["input_tokens"] or failed["output_tokens"] else ""
        yield _line("calls", f"{summary['failed_calls']} failed{billed}  {summary['retries']} sent again")
    if tape := summary.get("tape"):
        yield from _wrapped("tape", f"{tape['replayed']} replayed  {tape['recorded']} recorded  {tape['path']}")
    if faults := summary.get("injected_faults"):
        kinds = "  ".join(f"{count} {kind}" for kind, count in faults.items())
        yield from _wrapped("chaos", f"{kinds}  injected by --client.chaos")


def _side_cost(purpose: str, usage: Mapping[str, Any]) -> Iterator[str]:
    """What a kind of side model cost, which the tokens above don't count."""
    text = f"{_tokens(usage)}  in {usage['calls']} calls of {purpose} models, not counted above"
    if not usage["calls"]:
        text = f"none of {purpose} models"
    if usage["calls_without_usage"]:
        text += f"; {usage['calls_without_usage']} without a count"
    if usage["failed_calls"]:
        failed = usage["failed_usage"]
        billed = f", billed {_tokens(failed)}" if failed["input_tokens"] or failed["output_tokens"] else ""
        text += f"; {usage['failed_calls']} came to nothing{billed}"
    yield from _wrapped("", text)


def _tokens(usage: Mapping[str, Any]) -> str:
    return f"{_count(usage['input_tokens'])} in  {_count(usage['output_tokens'])} out"


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _times(summary: Mapping[str, Any]) -> Iterator[str]:
    # The seconds are those of the last launch, so what earlier ones did is not its work.
    scored = max(0, summary["scored"] - summary.get("earlier_rollouts", 0))
    rate = scored / summary["seconds"] if summary["seconds"] else 0.0
    servers = f"{summary['peak_servers']} servers at the peak, {summary['servers_left']} now"
    yield _line("time", f"{summary['seconds']:.1f} s  {rate:.1f} rollouts/s  {servers}")
    label = "latency"
    for name, record in summary["latency"].items():
        if record["count"]:
            shares = "  ".join(f"{share} {short_duration(record[share]):>7}" for share in ("p50", "p90", "p99"))
            yield _line(label, f"{name.replace('_', ' '):<12}{shares}")
            label = ""
    if summary["stages"]:
        stages = "  ".join(f"{name} {short_duration(record['mean'])}" for name, record in summary["stages"].items())
        yield from _wrapped("stages", f"mean  {stages}")


def _ending(summary: Mapping[str, Any]) -> Iterator[str]:
    yield _line("results", summary["run_dir"])
    yield _line("exit", f"{summary['exit_code']}: {summary['exit_reason']}")
