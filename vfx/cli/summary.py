"""The summary of a run as people read it, from the record that `summary.json` keeps."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["summary_lines"]

LABEL_WIDTH = 12


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The lines to print, without colour."""
    return ["", *_counts(summary), *_rewards(summary), *_costs(summary), *_ending(summary)]


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _counts(summary: Mapping[str, Any]) -> Iterator[str]:
    yield _line("run", f"{summary['environment']}  model {summary['model']}  harness {summary['harness']}")
    counts = f"{summary['planned']} planned  {summary['scored']} scored  {summary['errored']} errored"
    yield _line("rollouts", f"{counts}  {summary['interrupted']} interrupted")
    for kind, count in summary["errors"].items():
        yield _line("", f"{count} x {kind}: {_first_line(summary['error_examples'][kind])}")
    if summary["stop_conditions"]:
        yield _line("stopped by", "  ".join(f"{name} {count}" for name, count in summary["stop_conditions"].items()))


def _first_line(text: str, width: int = 300) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= width else line[: width - 3] + "..."


def _rewards(summary: Mapping[str, Any]) -> Iterator[str]:
    reward = summary["reward"]
    yield _line("reward", f"{_estimate(reward)}  mean over {summary['scored']} scored")
    if summary["errored"]:
        yield _line("", f"{_number(reward['mean_errored_as_zero'])}  mean with {summary['errored']} errored as 0")
    for name, estimate in summary["rewards"].items():
        if len(summary["rewards"]) > 1:
            yield _line("", f"{_estimate(estimate)}  {name}")
    for name, estimate in summary["metrics"].items():
        yield _line("metric", f"{_estimate(estimate)}  {name}")


def _estimate(estimate: Mapping[str, Any]) -> str:
    text = _number(estimate["mean"])
    if estimate["interval_95"] is None:
        return text
    low, high = estimate["interval_95"]
    return f"{text}  (95 % {_number(low)} to {_number(high)})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _costs(summary: Mapping[str, Any]) -> Iterator[str]:
    usage = summary["usage"]
    tokens = f"{_count(usage['input_tokens'])} in  {_count(usage['output_tokens'])} out  in {summary['turns']} turns"
    if usage["turns_without_usage"]:
        tokens += f"  ({usage['turns_without_usage']} turns without a count)"
    yield _line("tokens", tokens)
    if summary["failed_calls"] or summary["retries"]:
        yield _line("calls", f"{summary['failed_calls']} failed  {summary['retries']} sent again")
    rate = summary["scored"] / summary["seconds"] if summary["seconds"] else 0.0
    servers = f"{summary['peak_servers']} servers at the peak, {summary['servers_left']} now"
    yield _line("time", f"{summary['seconds']:.1f} s  {rate:.1f} rollouts/s  {servers}")


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _ending(summary: Mapping[str, Any]) -> Iterator[str]:
    yield _line("results", summary["run_dir"])
    yield _line("exit", f"{summary['exit_code']}: {summary['exit_reason']}")
