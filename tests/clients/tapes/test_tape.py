import fcntl
import json
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vfx.clients.tapes.contents import read_contents
from vfx.clients.tapes.lines import Answer, Recording
from vfx.clients.tapes.tape import Tape, TapeError
from vfx.errors import ConfigError
from vfx.redaction import conceal

OK = Answer(200, [("Content-Type", "application/json"), ("Set-Cookie", "a=b")], b'{"a":1}')


def recording(tape: Tape, request: bytes, answer: Answer = OK, path: str = "chat/completions") -> Recording:
    number = tape.take_number()
    return Recording(number, 1_795_973_788.0, (f"a{number}", f"b{number}", "c"), "POST", path, "", request, answer)


def record(path: Path, requests: Sequence[bytes], answer: Answer = OK) -> None:
    tape = Tape.open(path, is_writing=True)
    try:
        tape.begin("http://provider")
        for request in requests:
            tape.add(recording(tape, request, answer))
    finally:
        tape.close()


def played(path: Path) -> list[tuple[bytes, Answer]]:
    tape = Tape.open(path, is_writing=False)
    try:
        return [(tape.request(entry), tape.answer(entry)) for entry in tape.entries]
    finally:
        tape.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "tape.jsonl"


def conversation(turns: int) -> list[bytes]:
    """The requests of a conversation, each with all turns before it, and with tools behind them."""
    messages: list[Any] = []
    requests: list[bytes] = []
    for turn in range(turns):
        messages += [{"role": "assistant", "content": f"turn {turn} " * 40}, {"role": "user", "content": f"go {turn}"}]
        requests.append(json.dumps({"messages": messages, "tools": ["a tool " * 500]}).encode())
    return requests


def test_exchanges_come_back_in_order(path: Path) -> None:
    answers = [Answer(200, [], b"data: a\n\ndata: b\n\n", [9, 9]), Answer(404, [], b"{}", None, {"message": "no"})]
    record(path, [b'{"n":1}'], answers[0])
    record(path, [b'{"n":2}'], answers[1])
    assert played(path) == [(b'{"n":1}', answers[0]), (b'{"n":2}', answers[1])]


def test_bytes_that_are_no_text_come_back(path: Path) -> None:
    answer = Answer(200, [], b"\xff\x00\xfe", [1, 2])
    record(path, [b"\xff", b"\xffa"], answer)
    assert played(path) == [(b"\xff", answer), (b"\xffa", answer)]


def test_of_the_headers_only_what_sdks_read_is_kept(path: Path) -> None:
    record(path, [b"{}"])
    [(_, answer)] = played(path)
    assert answer.headers == [("Content-Type", "application/json")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.text(alphabet=st.sampled_from('ab\u00e9\U0001f30d\u2028\n"'), max_size=300), min_size=1, max_size=8))
def test_requests_come_back_whatever_they_share(path: Path, texts: list[str]) -> None:
    path.unlink(missing_ok=True)
    requests = [("x" * 200 + text + "y" * 100).encode() for text in texts]
    record(path, requests)
    assert [request for request, _ in played(path)] == requests


def test_a_long_conversation_makes_no_quadratic_file(path: Path) -> None:
    requests = conversation(200)
    record(path, requests)
    assert path.stat().st_size < 3 * len(requests[-1]) < sum(map(len, requests)) / 20
    assert [request for request, _ in played(path)] == requests


def test_conversations_side_by_side_make_no_quadratic_file(path: Path) -> None:
    several = [[request.replace(b"turn", b"t%d" % number) for request in conversation(60)] for number in range(4)]
    record(path, [request for same in zip(*several, strict=True) for request in same])
    assert path.stat().st_size < 4 * sum(len(each[-1]) for each in several)


def test_a_second_session_goes_on_from_what_was_replayed(path: Path) -> None:
    requests = conversation(20)
    record(path, requests[:10])
    tape = Tape.open(path, is_writing=True)
    try:
        tape.begin("http://provider")
        tape.learn(tape.entries[-1])
        tape.add(recording(tape, requests[10]))
    finally:
        tape.close()
    assert "like" in lines(path)[-1]["request"]
    assert [request for request, _ in played(path)] == requests[:11]


def test_the_header_is_written_again_only_for_another_place(path: Path) -> None:
    record(path, [b"1"])
    record(path, [b"2"])
    tape = Tape.open(path, is_writing=True)
    tape.begin("http://elsewhere")
    tape.add(recording(tape, b"3"))
    tape.close()
    assert ["vfx_tape" in line for line in lines(path)] == [True, False, False, True, False]
    contents = read_contents(path)
    assert [entry.endpoint for entry in contents.entries] == ["http://provider", "http://provider", "http://elsewhere"]
    assert len({line["id"] for line in lines(path) if "id" in line}) == 1


def test_what_was_discarded_is_not_there_any_more_but_others_may_refer_to_it(path: Path) -> None:
    requests = conversation(3)
    tape = Tape.open(path, is_writing=True)
    tape.begin("http://provider")
    for request in requests:
        tape.add(recording(tape, request))
    tape.discard({1, 9})
    tape.discard(())
    tape.close()
    assert [request for request, _ in played(path)] == requests[1:]
    assert lines(path)[-1] == {"discarded": [1]}


def test_a_torn_last_line_is_passed_over_at_every_byte(path: Path) -> None:
    record(path, [b'{"a":"\xc3\xbc"}', b'{"b":2}'])
    whole = path.read_bytes()
    ends = [number + 1 for number, byte in enumerate(whole) if byte == 10]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        expected = max(0, sum(end <= length for end in ends) - 1)
        assert len(read_contents(path).entries) == expected
        record(path, [b'{"c":3}'])
        assert [request for request, _ in played(path)][expected:] == [b'{"c":3}']


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"# notes\n", "no tape of vfx"), (b"# no", "no tape of vfx"), (b'{"vfx_tape":2,"id":""}\n', "format 2")],
)
def test_another_file_or_a_later_tape_is_told_and_left_alone(path: Path, content: bytes, words: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    for is_writing in (True, False):
        with pytest.raises(ConfigError, match=words):
            Tape.open(path, is_writing=is_writing)
    assert path.read_bytes() == content


def test_a_tape_that_is_recorded_on_is_refused(path: Path) -> None:
    record(path, [b"1"])
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        Tape.open(path, is_writing=False).close()
        with pytest.raises(ConfigError, match="somebody else uses it"):
            Tape.open(path, is_writing=True)
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="somebody else records on it"):
            Tape.open(path, is_writing=False)
        with pytest.raises(ConfigError, match="somebody else records on it"):
            Tape.look(path)
    Tape.open(path, is_writing=True).close()


def test_a_folder_is_no_tape(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be used"):
        Tape.open(tmp_path, is_writing=False)


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_pipe_or_a_device_is_no_tape(tmp_path: Path, *, is_writing: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="it is no regular file"):
            Tape.open(path, is_writing=is_writing)


def test_secrets_are_in_no_part_of_the_file(path: Path) -> None:
    secret = "sk-77aa0f3c91be"
    conceal(secret)
    body = f'data: {{"a":"{secret}"}}\n\ndata: {secret}\n\n'.encode()
    cuts = [8, 13, 40, len(body)]
    answer = Answer(
        400,
        [("x-request-id", f"of {secret}"), ("authorization", secret)],
        body,
        [end - start for start, end in zip([0, *cuts], cuts, strict=False)],
        {"message": f"wrong key {secret}", "fatal": secret},
    )
    record(path, [b"1"], answer)
    assert secret not in path.read_text()
    [(_, kept)] = played(path)
    assert kept.body == body.replace(secret.encode(), b"***")
    assert kept.chunks
    assert sum(kept.chunks) == len(kept.body)


def test_a_tape_that_was_changed_meanwhile_is_told(path: Path) -> None:
    record(path, conversation(3))
    tape = Tape.open(path, is_writing=False)
    try:
        os.truncate(path, 10)
        with pytest.raises(TapeError, match="was changed while it was in use"):
            tape.answer(tape.entries[0])
        with pytest.raises(TapeError, match="was changed while it was in use"):
            tape.request(tape.entries[-1])
    finally:
        tape.close()


def test_an_earlier_look_is_taken_only_while_the_file_is_the_same(path: Path) -> None:
    record(path, [b"1"])
    seen = Tape.look(path)
    tape = Tape.open(path, is_writing=False, contents=seen)
    tape.close()
    assert tape.contents is seen
    record(path, [b"2"])
    tape = Tape.open(path, is_writing=False, contents=seen)
    tape.close()
    assert len(tape.entries) == 2


def test_a_full_disk_leaves_whole_lines(path: Path) -> None:
    record(path, [b"1"])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    tape = Tape.open(path, is_writing=True)
    tape.begin("http://provider")
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(TapeError, match="can't be recorded"):
            tape.add(recording(tape, b"2" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
        tape.close()
    assert path.read_bytes() == before
