import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.native_replies import message_stream, response_stream
from tests.support.replies import Reply
from vfx.clients.tapes.lines import Answer
from vfx.clients.tapes.translating import translated
from vfx.dialects.routes import ANTHROPIC, CHAT, RESPONSES
from vfx.messages import Message

OLD, NEW = "/var/vfx-2d8170144f379be9/2c3af759e5a16ee5", "/srv/t/vfx-bf9156af613f6445/5cd37aede75ddb37"
NAMES = {OLD: NEW, "51234": "87311"}


def answer_of(reply: Reply) -> Answer:
    assert reply.chunks is not None
    chunks = [bytes(chunk) for chunk in reply.chunks]
    return Answer(200, [], b"".join(chunks), [len(chunk) for chunk in chunks])


def chat_stream(*deltas: dict[str, Any]) -> Answer:
    """A chat stream, one delta a chunk."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n".encode() for choice in choices]
    events.append(b"data: [DONE]\n\n")
    return Answer(200, [], b"".join(events), [len(event) for event in events])


def read(answer: Answer, dialect: Any) -> Message:
    stream = dialect.assemble({})
    stream.feed(answer.body)
    stream.finish()
    assert stream.is_complete
    return stream.completion().messages[0]


def test_a_whole_answer_changes_in_its_names_only() -> None:
    answer = Answer(200, [], f'{{ "a": "ls {OLD}/x\\n{OLD}", "id":51234, "u": "localhost:51234" }}'.encode())
    told = translated(answer, NAMES)
    assert told.body.decode() == f'{{ "a": "ls {NEW}/x\\n{NEW}", "id":51234, "u": "localhost:87311" }}'


def test_an_answer_without_the_names_stays_as_it_is() -> None:
    for answer in (Answer(200, [], b'{"a":1}'), chat_stream({"content": "x"}), Answer(200, [], b"\xff")):
        assert translated(answer, NAMES) is answer


@given(st.integers(1, 12), st.integers(0, 12))
def test_a_name_is_found_however_a_stream_cuts_it(size: int, shift: int) -> None:
    text = "x" * shift + f" see {OLD}/a.py and {OLD}\u00fc"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    told = translated(chat_stream(*({"content": piece} for piece in pieces)), NAMES)
    assert read(told, CHAT).content == text.replace(OLD, NEW)
    assert told.chunks
    assert sum(told.chunks) == len(told.body)


def test_texts_side_by_side_are_not_mixed() -> None:
    half = len(OLD) // 2

    def call(index: int, text: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": text}}]}

    parts = (OLD[:half], OLD[half:])
    told = translated(chat_stream(call(0, parts[0]), call(1, parts[0]), call(0, parts[1]), call(1, parts[1])), NAMES)
    assert [each.arguments for each in read(told, CHAT).tool_calls] == [NEW, NEW]


@pytest.mark.parametrize("name", ["responses", "anthropic"])
def test_the_other_dialects_are_told_alike(name: str) -> None:
    command = json.dumps({"cmd": f"cat {OLD}/add.py\n", "session_id": 51234})
    if name == "responses":
        call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed", "name": "exec"}
        answer, dialect = answer_of(response_stream({**call, "arguments": command}, f"in {OLD}")), RESPONSES
    else:
        block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": json.loads(command)}
        answer, dialect = answer_of(message_stream(block, f"in {OLD}")), ANTHROPIC
    message = read(translated(answer, NAMES), dialect)
    assert json.loads(message.tool_calls[0].arguments) == {"cmd": f"cat {NEW}/add.py\n", "session_id": 87311}
    assert message.text == f"in {NEW}"


def test_events_without_a_name_keep_their_bytes() -> None:
    odd = b': a comment\r\n\r\nevent: x\r\ndata:  {"a" : 1}\r\n\r\ndata: no json\n\n'
    answer = Answer(200, [], odd + f'data: {{"a":"{OLD}"}}\r\n\r\n'.encode(), [len(odd), len(OLD) + 19])
    assert translated(answer, NAMES).body == odd + f'data: {{"a":"{NEW}"}}\r\n\r\n'.encode()


def test_half_a_character_stays_one_in_an_event_that_changes() -> None:
    told = translated(chat_stream({"content": f"{OLD} \ud83d"}, {"content": "\ude00"}), NAMES)
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in told.body.split(b"\n\n")[:2]]
    assert deltas == [{"content": f"{NEW} \ud83d"}, {"content": "\ude00"}]
