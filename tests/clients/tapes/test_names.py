import pytest

from vfx.clients.tapes.names import Names

NAMES = Names({"51234": "87311", "/a/b": "/x", "/a/bc": "/y", "12345678-0000-4000-8000-000000000000": "other"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("curl http://127.0.0.1:51234/x", "curl http://127.0.0.1:87311/x"),
        ("localhost:51234", "localhost:87311"),
        ('{"session_id": 51234}', '{"session_id": 87311}'),
        (r'{"arguments":"{\"session_id\":51234}"}', r'{"arguments":"{\"session_id\":87311}"}'),
        ("the session ID 51234", "the session ID 87311"),
        ("/a/b /a/bc /a/bcd", "/x /y /a/bcd"),
        ("see 12345678-0000-4000-8000-000000000000.", "see other."),
    ],
)
def test_names_are_told_anew(text: str, told: str) -> None:
    assert NAMES.tell(text) == told


@pytest.mark.parametrize(
    "text", ["The sum is 51234.", '{"id":51234}', "10.0.0.1:51234", "127.0.0.1:512345", "localhost:151234", ""]
)
def test_a_number_that_is_no_name_stays(text: str) -> None:
    assert NAMES.tell(text) == text
