import pytest

from vfx.interception.retries import MAX_AGE_S, MAX_ATTEMPTS, MAX_BYTES, KeyReusedError, Mark, RetryRecord, digest_of

PLAIN = Mark()
AGAIN = Mark(is_again=True)


def keyed(key: bytes) -> Mark:
    return Mark(key=key)


def served(record: RetryRecord[str], name: str, *, mark: Mark = PLAIN, size: int = 1, now: float = 0.0) -> None:
    record.end(record.add(mark, b"x", name), now, is_served=True, size=size)


def found(record: RetryRecord[str], mark: Mark, digest: bytes = b"x", now: float = 0.0) -> str | None:
    attempt = record.find(mark, digest, now)
    return None if attempt is None else attempt.call


@pytest.mark.parametrize(
    ("headers", "mark"),
    [
        ({}, Mark()),
        ({b"idempotency-key": b" k "}, Mark(b"k", is_announced=True)),
        ({b"idempotency-key": b""}, Mark()),
        ({b"x-stainless-retry-count": b"0"}, Mark(is_announced=True)),
        ({b"x-stainless-retry-count": b"2"}, Mark(is_again=True, is_announced=True)),
        ({b"x-stainless-retry-count": b"-1"}, Mark()),
        ({b"x-stainless-retry-count": b"false"}, Mark()),
        ({b"x-idempotency-key": b"k"}, Mark()),
    ],
)
def test_marks(headers: dict[bytes, bytes], mark: Mark) -> None:
    assert Mark.of(headers) == mark


def test_an_unmarked_request_is_a_new_call() -> None:
    record = RetryRecord[str]()
    served(record, "a1")
    assert found(record, PLAIN) is None


def test_a_key_names_its_call() -> None:
    record = RetryRecord[str]()
    served(record, "a1", mark=keyed(b"k"))
    served(record, "a2", mark=keyed(b"l"))
    assert found(record, keyed(b"k")) == "a1"
    assert found(record, keyed(b"other")) is None


def test_a_key_with_another_body_is_refused_also_after_a_failure() -> None:
    record = RetryRecord[str]()
    record.end(record.add(keyed(b"k"), b"x", "a1"), 0.0, is_served=False)
    with pytest.raises(KeyReusedError):
        record.find(keyed(b"k"), b"y", 0.0)


def test_a_count_means_the_latest_call_with_that_body() -> None:
    record = RetryRecord[str]()
    served(record, "a1")
    served(record, "a2")
    record.end(record.add(PLAIN, b"y", "b1"), 0.0, is_served=True)
    assert found(record, AGAIN) == "a2"
    assert found(record, AGAIN, b"y") == "b1"
    assert found(record, AGAIN, b"z") is None


def test_a_running_call_is_found() -> None:
    record = RetryRecord[str]()
    record.add(PLAIN, b"x", "a1")
    assert found(record, AGAIN, now=10 * MAX_AGE_S) == "a1"


@pytest.mark.parametrize("mark", [AGAIN, keyed(b"k")])
def test_a_failed_call_is_made_anew_even_if_an_earlier_one_was_served(mark: Mark) -> None:
    record = RetryRecord[str]()
    served(record, "a1", mark=mark)
    record.end(record.add(mark, b"x", "a2"), 0.0, is_served=False)
    assert found(record, mark) is None


def test_old_answers_are_forgotten() -> None:
    record = RetryRecord[str]()
    served(record, "a1")
    assert found(record, AGAIN, now=MAX_AGE_S) == "a1"
    assert found(record, AGAIN, now=MAX_AGE_S + 1) is None


def test_the_number_of_calls_is_bounded_and_running_ones_stay() -> None:
    record = RetryRecord[str]()
    record.add(keyed(b"r"), b"x", "running")
    for number in range(MAX_ATTEMPTS + 5):
        served(record, str(number), mark=keyed(b"%d" % number))
    assert found(record, keyed(b"4")) is None
    assert found(record, keyed(b"5")) == "5"
    assert found(record, keyed(b"r")) == "running"


def test_the_bytes_of_answers_are_bounded_and_the_latest_stays() -> None:
    record = RetryRecord[str]()
    served(record, "small", mark=keyed(b"1"), size=10)
    served(record, "huge", mark=keyed(b"2"), size=2 * MAX_BYTES)
    assert found(record, keyed(b"1")) is None
    assert found(record, keyed(b"2")) == "huge"
    served(record, "next", mark=keyed(b"3"), size=10)
    assert found(record, keyed(b"2")) is None
    assert found(record, keyed(b"3")) == "next"


def test_route_and_body_make_the_identity() -> None:
    assert digest_of("/a", b"x") == digest_of("/a", b"x")
    assert len({digest_of("/a", b"x"), digest_of("/b", b"x"), digest_of("/a", b"y")}) == 3
