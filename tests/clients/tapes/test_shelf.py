from vfx.clients.tapes.contents import Entry
from vfx.clients.tapes.shelf import Shelf


def entry(number: int, *keys: str) -> Entry:
    return Entry(number, 0, 0, 0.0, keys, "POST", "x", "", "e", 1)


def taken(shelf: Shelf, level: int, key: str) -> int | None:
    found = shelf.take(level, key)
    return None if found is None else found.number


def test_equal_requests_get_theirs_in_the_order_of_recording_and_no_more() -> None:
    shelf = Shelf([entry(number, "a", "m", "t") for number in (3, 1, 2)])
    assert [taken(shelf, 0, "a") for _ in range(4)] == [3, 1, 2, None]
    assert shelf.count(0, "a") == 3


def test_each_exchange_is_given_once_whichever_key_finds_it() -> None:
    shelf = Shelf([entry(1, "a", "m", "t"), entry(2, "b", "m", "t"), entry(3, "c", "n", "t")])
    assert taken(shelf, 1, "m") == 1
    assert taken(shelf, 0, "a") is None
    assert taken(shelf, 0, "b") == 2
    assert taken(shelf, 1, "m") is None
    assert taken(shelf, 2, "t") == 3
    assert taken(shelf, 2, "t") is None


def test_skipped_ones_are_not_given_but_counted() -> None:
    shelf = Shelf([entry(1, "a", "m", "t"), entry(2, "a", "m", "t")], skipped={1})
    assert [taken(shelf, 0, "a"), taken(shelf, 0, "a")] == [2, None]
    assert shelf.count(0, "a") == 2


def test_other_keys_take_the_place_of_the_recorded_ones() -> None:
    shelf = Shelf([entry(1, "a", "m", "t")], keys={1: ("a", "new", "new")})
    assert taken(shelf, 1, "m") is None
    assert taken(shelf, 1, "new") == 1


def test_what_is_put_back_is_given_again_before_the_others_and_once() -> None:
    shelf = Shelf([entry(1, "a", "m", "t"), entry(2, "a", "m", "t")])
    assert not shelf.put_back(1)
    assert taken(shelf, 1, "m") == 1
    assert shelf.put_back(1)
    assert not shelf.put_back(1)
    assert [taken(shelf, 0, "a") for _ in range(3)] == [1, 2, None]
    assert [taken(shelf, level, key) for level, key in ((1, "m"), (2, "t"))] == [None, None]


def test_an_unknown_key_leaves_no_trace() -> None:
    shelf = Shelf()
    assert taken(shelf, 0, "a") is None
    assert shelf.count(0, "a") == 0
