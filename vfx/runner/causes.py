"""Errors grouped by cause: alike but for numbers and ids, with one example and what helps against them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vfx.trace.record import ErrorRecord, Trace

__all__ = ["Cause", "Causes", "advice", "normalised"]

MAX_CAUSES = 100
"""Further ones are counted together, kind by kind: messages that all differ must not fill the memory."""
MAX_PATTERN_CHARS = 200
EXAMPLE_CHARS = 1000

_VARYING = re.compile(
    r"""
    (?P<kept>\bHTTP\ \d{3}\b) |  # The status tells causes apart.
    \b0x[0-9a-f]+ |
    \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b |
    \b[a-z]+[_-](?=[a-z0-9_-]*[0-9])[a-z0-9_-]{8,} |  # req_8af31c..., chatcmpl-42ab...
    \b(?=[a-f]*[0-9])[0-9a-f]{8,}\b |
    \d+(?:[.,:]\d+)*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def normalised(message: str) -> str:
    """The first line of a message with `#` for every number and id in it, but for an HTTP status."""
    line = message.strip().partition("\n")[0]
    plain = _VARYING.sub(lambda found: found["kept"] or "#", line[: 8 * MAX_PATTERN_CHARS])
    return " ".join(plain.split())[:MAX_PATTERN_CHARS]


@dataclass(slots=True)
class Cause:
    """Errors that are alike."""

    kind: str
    pattern: str
    """What their messages have in common."""
    example: str
    """The first one's message."""
    task: str
    """The first one's rollout: the task's name, id or key, `#`, and the number of the rollout."""
    advice: str | None
    """What helps; None when only the message can tell."""
    count: int = 0

    def to_record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind,
            "pattern": self.pattern,
            "count": self.count,
            "example": self.example,
            "task": self.task,
            "advice": self.advice,
        }


@dataclass(slots=True)
class Causes:
    """The causes of a run's errored rollouts, by their first error."""

    _known: dict[tuple[str, str], Cause] = field(default_factory=dict[tuple[str, str], Cause])

    def add(self, trace: Trace) -> None:
        """Count an errored rollout."""
        error = trace.errors[0]
        pattern = normalised(error.message)
        if len(self._known) >= MAX_CAUSES and (error.kind, pattern) not in self._known:
            pattern = "other errors"
        cause = self._known.get((error.kind, pattern))
        if cause is None:
            task = f"{trace.task.name or trace.task.id or trace.task.key}#{trace.rollout}"
            example = error.message[:EXAMPLE_CHARS]
            cause = self._known[error.kind, pattern] = Cause(error.kind, pattern, example, task, advice(error))
        cause.count += 1

    def __iter__(self) -> Iterator[Cause]:
        """The most frequent first; the order does not depend on which came first."""
        return iter(sorted(self._known.values(), key=lambda cause: (-cause.count, cause.kind, cause.pattern)))


def advice(error: ErrorRecord) -> str | None:
    """The option or the step that helps against an error; None when only its message can tell."""
    for kinds, pattern, text in _ADVICE:
        if error.kind in kinds and re.search(pattern, error.message, re.IGNORECASE):
            return text
    return None


_ANY = frozenset({"provider", "task", "scoring", "harness", "toolset", "user", "sandbox", "interception", "tunnel"})
_PROVIDER = frozenset({"provider"})
_SCORING = frozenset({"scoring"})
# A program often repeats in its own error what the provider told it.
_CALLER = frozenset({"provider", "harness"})

_ADVICE: tuple[tuple[frozenset[str], str, str], ...] = (
    (_SCORING, r"^judge .*: the answer can't be read", "another judge model, more max_asks, or structured = true"),
    (_SCORING, r"^judge .*HTTP 40[13]\b", "a key that may use the judge's model, in the variable of its api_key_var"),
    (_SCORING, r"^judge .*HTTP 404\b", "the judge's model and base_url: does this endpoint have this model?"),
    (_SCORING, r"^judge .*(rate limit|\b429\b)", "a lower -c, or more max_retries of the judge's client"),
    (_SCORING, r"^judge .*(refused the connection|unknown host|no (secure )?connection)", "the judge's base_url"),
    (
        _CALLER,
        r"injected by --client\.chaos",
        "a smaller share in --client.chaos, or more --client.max-retries: it is no fault of the provider",
    ),
    (
        _CALLER | {"drift"},
        r"not on the tape",
        "a new tape with --client.cassette-mode record, or --client.cassette-ignore for what may differ",
    ),
    (_ANY, r"\(--timeout\.setup\)", "a longer --timeout.setup; on a busy host a lower -c"),
    (_ANY, r"\(--timeout\.rollout\)", "a longer --timeout.rollout, or --max-turns to end it by turns"),
    (_ANY, r"\(--timeout\.finalize\)", "a longer --timeout.finalize"),
    (_ANY, r"\(--timeout\.scoring\)", "a longer --timeout.scoring"),
    (_ANY, r"\(--timeout\.total\)", "a longer --timeout.total"),
    (_CALLER, r"insufficient_quota|exceeded your current quota", "credit for this account, or another key"),
    (_PROVIDER, r"--client\.max-retry-wait", "a longer --client.max-retry-wait, or a lower -c"),
    (_CALLER, r"rate limit|\b429\b", "a lower -c, or more --client.max-retries"),
    (_CALLER, r"idle timeout", "a longer --client.idle-timeout, or a lower -c"),
    (_PROVIDER, r"no key was sent", "--client.api-key-var names the variable that holds the key"),
    (_CALLER, r"HTTP 40[13]\b", "a key that may use this model, in the variable of --client.api-key-var"),
    (_PROVIDER, r"HTTP 404\b", "-m and --client.base-url: does this endpoint have this model?"),
    (_PROVIDER, r"give the final address", "the address it redirects to as --client.base-url"),
    (_CALLER, r"context.{0,20}(length|window)|maximum context|too many tokens", "--max-turns or --max-input-tokens"),
    (_PROVIDER, r"HTTP 400\b", "the options of --sampling: does this model take them all?"),
    (_PROVIDER, r"HTTP (408|5\d\d)\b", "more --client.max-retries, or --retries.max-attempts 2"),
    (
        _PROVIDER,
        r"refused the connection|unknown host|no (secure )?connection|proxy",
        "--client.base-url: is it right?",
    ),
    (_PROVIDER, r"stream incomplete|closed|broke|reset", "--retries.max-attempts 2"),
    (frozenset({"interception", "tunnel", "sandbox"}), r"", "--retries.max-attempts 2; run.log tells more"),
    (frozenset({"scoring", "task"}), r"\w+(Error|Exception)\b", "its traceback, in the errors of traces.jsonl"),
    (frozenset({"harness"}), r"\w+(Error|Exception)\b|exit code|signal", "its traceback or output, in traces.jsonl"),
)
