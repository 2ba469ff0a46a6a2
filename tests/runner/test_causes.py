import pytest

from tests.support.traces import make_trace
from vfx.errors import HarnessError, ProviderError, RolloutError, ScoringError, TaskError
from vfx.runner.causes import MAX_CAUSES, Causes, advice, normalised
from vfx.trace.record import ErrorRecord


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("no move for board 12345", "no move for board 9"),
        ("gone: req_8af31c22 at 10.5 s", "gone: req_01dd9f3c at 0.1 s"),
        ("file /tmp/a-3f9d2c1b0a is missing", "file /tmp/a-00ffaa9912 is missing"),
        ("<object at 0x7f3a>", "<object at 0x11>"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-426614174999"),
        ("one\ntrace 1", "one\ntrace 2"),
    ],
)
def test_messages_that_differ_in_numbers_and_ids_are_alike(first: str, second: str) -> None:
    assert normalised(first) == normalised(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [("HTTP 500 from a", "HTTP 503 from a"), ("KeyError: 'a'", "KeyError: 'b'"), ("decade", "facade")],
)
def test_what_tells_causes_apart_stays(first: str, second: str) -> None:
    assert normalised(first) != normalised(second)


def errored(error: RolloutError, key: str = "k") -> Causes:
    causes = Causes()
    causes.add(make_trace(key, reply=None, error=error))
    return causes


def test_causes_are_counted_with_one_example_the_most_frequent_first() -> None:
    causes = errored(TaskError("setup: no disk"))
    for number in range(3):
        causes.add(
            make_trace(f"t{number}", rollout=number, reply=None, error=ProviderError(f"HTTP 500: req_{number}1234567"))
        )
    first, second = causes
    assert (first.count, first.example, first.task) == (3, "HTTP 500: req_01234567", "t0#0")
    assert (second.kind, second.count) == ("task", 1)


def test_the_same_words_of_another_kind_are_another_cause() -> None:
    causes = errored(TaskError("gone"))
    causes.add(make_trace(reply=None, error=HarnessError("gone")))
    assert [cause.count for cause in causes] == [1, 1]


def test_messages_that_all_differ_do_not_fill_the_memory() -> None:
    causes = Causes()
    words = [f"{chr(97 + a)}{chr(97 + b)}" for a in range(20) for b in range(20)]
    for word in words:
        causes.add(make_trace(reply=None, error=TaskError(word * 500)))
    kept = list(causes)
    assert len(kept) == MAX_CAUSES + 1
    assert sum(cause.count for cause in kept) == len(words)
    assert (kept[0].pattern, kept[0].count) == ("other errors", len(words) - MAX_CAUSES)
    assert all(len(cause.example) <= 1000 for cause in kept)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ScoringError("scoring took longer than 1 s (--timeout.scoring)"), "--timeout.scoring"),
        (HarnessError("harness timeout: it had not ended after 3 s (--timeout.rollout)"), "--timeout.rollout"),
        (TaskError("setup took longer than 3 s (--timeout.setup)"), "--timeout.setup"),
        (HarnessError("the rollout took longer than 3 s (--timeout.total)"), "--timeout.total"),
        (
            ProviderError("rate limited: h asked to wait 90 s, more than --client.max-retry-wait 60"),
            "--client.max-retry-wait",
        ),
        (ProviderError("HTTP 429 from h (after 6 attempts): slow down"), "a lower -c"),
        (ProviderError('HTTP 429 from h: "insufficient_quota"'), "credit"),
        (ProviderError("provider idle timeout: no byte for 600 s from h"), "--client.idle-timeout"),
        (ProviderError("HTTP 401 from h: no (the key is read from KEY)"), "--client.api-key-var"),
        (ProviderError("HTTP 401 from h: no (no key was sent: --client.api-key-var is none)"), "--client.api-key-var"),
        (ProviderError("HTTP 404 from h for model 'm'"), "-m"),
        (ProviderError("HTTP 400 from h: top_k is unknown"), "--sampling"),
        (ProviderError("HTTP 503 from h (after 6 attempts)"), "--client.max-retries"),
        (ProviderError("127.0.0.1:9 refused the connection (after 3 attempts)"), "--client.base-url"),
        (ProviderError("unknown host: h"), "--client.base-url"),
        (ProviderError("provider stream incomplete: h closed the connection"), "--retries.max-attempts"),
        (HarnessError("harness: BadRequestError: maximum context length is 4096 tokens"), "--max-turns"),
        (ScoringError("judge 'j': the answer can't be read: it is empty"), "max_asks"),
        (ScoringError("judge 'j': HTTP 401 from h: no"), "api_key_var"),
        (ScoringError("judge 'j': HTTP 404 from h for model 'm'"), "base_url"),
        (ScoringError("judge 'j': HTTP 429 from h (after 6 attempts): slow down"), "max_retries of the judge's client"),
        (ScoringError("judge 'j': 127.0.0.1:9 refused the connection (after 3 attempts)"), "the judge's base_url"),
        (ScoringError("reward 'r': KeyError: 'x'"), "traceback"),
        (HarnessError("harness program: exit code 3"), "traces.jsonl"),
    ],
)
def test_what_helps_is_named(error: RolloutError, expected: str) -> None:
    assert expected in (advice(ErrorRecord.of(error)) or "")


def test_no_advice_is_better_than_a_wrong_one() -> None:
    assert advice(ErrorRecord.of(TaskError("the coin fell on its edge"))) is None
