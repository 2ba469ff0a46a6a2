import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.dialects.sse import Event, EventParser


def parse(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


STREAM = (
    "\ufeff: hello\r\n\r\ndata: 你好 🎉\r\ndata:zwei\r\n\r\n"
    "event: error\rdata:  x\rid: 7\r\rretry: 5\n\ndata\n\n: c\ndata: é\n\n"
).encode()
EVENTS = [Event("你好 🎉\nzwei"), Event(" x", "error"), Event(""), Event("é")]


def test_stream_of_every_kind_of_line() -> None:
    assert parse(STREAM) == EVENTS


def test_events_do_not_depend_on_where_the_bytes_are_cut() -> None:
    for cut in range(len(STREAM) + 1):
        assert parse(STREAM[:cut], STREAM[cut:]) == EVENTS, cut


def test_bytes_may_come_one_by_one() -> None:
    assert parse(*(bytes([byte]) for byte in STREAM)) == EVENTS


@given(
    st.lists(
        st.sampled_from([b"\r", b"\n", b"data:", b"x", b": c", b"event: e", b"\xef\xbb\xbf", b"\xe4"]), max_size=30
    )
)
def test_any_bytes_give_the_same_events_whole_and_one_by_one(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert parse(whole) == parse(*(bytes([byte]) for byte in whole)) == parse(*parts)


def test_event_without_its_blank_line_is_not_given() -> None:
    assert parse(b"data: a\n") == []


def test_event_of_comments_only_is_none() -> None:
    assert parse(b": a\n\n: b\n\n") == []


def test_type_belongs_to_one_event() -> None:
    assert parse(b"event: a\ndata: 1\n\ndata: 2\n\nevent: b\n\ndata: 3\n\n") == [
        Event("1", "a"),
        Event("2"),
        Event("3"),
    ]


def test_line_that_is_not_utf8_is_kept_with_replacements() -> None:
    assert parse(b"data: a\xffb\n\n") == [Event("a\ufffdb")]


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"", True),
        (b"d", False),
        (b"data: a", False),
        (b"data: a\n", False),
        (b"data: a\r\n\r", False),
        (b"data: a\r\n\r\n", True),
        (b"data: a\n\n", True),
        (b": c\n", False),
        (b": c\n\n", True),
        (b"data: a\n\ndata", False),
    ],
)
def test_comment_fits_only_between_events(piece: bytes, expected: bool) -> None:
    parser = EventParser()
    parser.feed(piece)
    assert parser.is_between_events is expected
