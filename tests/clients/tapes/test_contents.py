import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.tapes.test_tape import lines, record
from vfx.clients.tapes.contents import read_contents
from vfx.clients.tapes.lines import Answer
from vfx.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "tape.jsonl"


def test_a_line_that_cant_be_read_is_told_with_its_number(path: Path) -> None:
    record(path, [b"1", b"2", b"3"])
    whole = path.read_bytes().split(b"\n")
    for broken in (b"", b"{", b"[]", b"{}", whole[2].replace(b'"n":2', b'"n":1'), b'{"n":1e999}', b"\xff"):
        path.write_bytes(b"\n".join([*whole[:2], broken, *whole[3:]]))
        with pytest.raises(ConfigError, match=r"tape\.jsonl: line 3 is no exchange"):
            read_contents(path)


@pytest.mark.parametrize("request_", [{"like": 7, "start": 0, "end": 0, "middle": ""}, {"like": 2}, {"base64": "?"}, 5])
def test_a_request_that_refers_to_nothing_is_told(path: Path, request_: Any) -> None:
    record(path, [b"1", b"2"])
    first, *_, last = lines(path)
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, last | {"request": request_})))
    with pytest.raises(ConfigError, match="line 2 is no exchange"):
        read_contents(path)


def test_chunks_that_are_not_those_of_the_answer_are_told(path: Path) -> None:
    record(path, [b"1"], Answer(200, [], b"abc", [1, 2]))
    path.write_bytes(path.read_bytes().replace(b"[1,2]", b"[1,1]"))
    with pytest.raises(ConfigError, match="line 2 is no exchange"):
        read_contents(path)


def test_what_a_line_does_not_know_is_passed_over(path: Path) -> None:
    record(path, [b"1"])
    path.write_text("".join(json.dumps(line | {"later": {"x": 1}}) + "\n" for line in lines(path)))
    assert len(read_contents(path).entries) == 1


def test_a_line_may_hold_what_others_take_for_the_end_of_one(path: Path) -> None:
    record(path, ['"a\u2028b\u0085c\r"'.encode(), b"2"])
    assert len(read_contents(path).entries) == 2
