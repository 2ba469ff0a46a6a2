import re
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from vfx.clients.faults import MAX_KNOWN, Faults, checked_shares, status_of

SHARES = checked_shares({"429": 0.1, "cut": 0.05, "slow": 0.2})


def met(faults: Faults, bodies: Sequence[bytes], attempt: int = 0) -> list[str | None]:
    """The fault of one call for each of `bodies`, in that order."""
    asked = [faults.ask(faults.digest("POST", "chat/completions", body)) for body in bodies]
    return [faults.find(one, attempt) for one in asked]


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_each_fault_has_its_share() -> None:
    counts = Counter(met(Faults(SHARES, seed=3), bodies(20_000)))
    assert {kind: round(count / 20_000, 2) for kind, count in counts.items()} == {
        None: 0.65,
        "429": 0.1,
        "cut": 0.05,
        "slow": 0.2,
    }


def test_the_order_of_calls_changes_no_fault() -> None:
    there, back = bodies(500), bodies(500)[::-1]
    assert met(Faults(SHARES, seed=3), there) == met(Faults(SHARES, seed=3), back)[::-1]


def test_the_order_of_the_shares_changes_no_fault() -> None:
    shares = checked_shares({"slow": 0.2, "cut": 0.05, "429": 0.1})
    assert met(Faults(shares, seed=3), bodies(500)) == met(Faults(SHARES, seed=3), bodies(500))


def test_another_seed_gives_other_faults() -> None:
    assert met(Faults(SHARES, seed=3), bodies(500)) != met(Faults(SHARES, seed=4), bodies(500))


def test_what_is_asked_again_meets_faults_of_its_own_and_so_does_another_attempt() -> None:
    again = met(Faults(SHARES, seed=3), [b"same"] * 500)
    assert len(set(again)) == 4
    assert again == met(Faults(SHARES, seed=3), [b"same"] * 500)
    assert len({met(Faults(SHARES, seed=3), [b"same"], attempt)[0] for attempt in range(100)}) == 4


def test_what_decides_is_path_and_method_too() -> None:
    faults = Faults(SHARES, seed=3)
    digests = {faults.digest(method, path, b"") for method in ("GET", "POST") for path in ("models", "responses")}
    assert len(digests) == 4


def test_a_share_of_one_takes_all() -> None:
    assert set(met(Faults(checked_shares({"500": 0.5, "503": 0.5}), seed=0), bodies(500))) == {"500", "503"}


def test_what_is_remembered_is_bounded() -> None:
    faults = Faults(SHARES, seed=3)
    first = faults.ask(b"first")
    for number in range(MAX_KNOWN):
        faults.ask(b"%d" % number)
    assert faults.ask(b"first") == first


@pytest.mark.parametrize(
    ("kind", "status"), [("429", 429), ("599", 599), ("399", None), ("600", None), ("42", None), ("cut", None)]
)
def test_a_status_is_an_error_of_http(kind: str, status: int | None) -> None:
    assert status_of(kind) == status


def test_kinds_are_taken_in_any_case() -> None:
    assert checked_shares({"CUT": 0.5}) == {"cut": 0.5}


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"429": 0.1, "cutt": 0.1}, "no fault 'cutt'"),
        ({"200": 0.1}, "no fault '200'"),
        ({"٤٢٩": 0.1}, "no fault"),
        ({"cut": 1.5}, "the share of cut is 1.5, expected a number from 0 to 1"),
        ({"cut": -0.1}, "the share of cut is -0.1"),
        ({"cut": 0.6, "429": 0.6}, "the shares add up to 1.2, expected at most 1"),
    ],
)
def test_what_is_no_share_of_a_fault_is_refused_with_the_kinds_there_are(
    shares: Mapping[str, float], words: str
) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(words)}.*429 or 500, cut, refused, slow"):
        checked_shares(shares)
