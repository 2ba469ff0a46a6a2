import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interception.stage import new_session
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT
from vfx.interception.document import Document, Listing
from vfx.interception.prompts import MAX_BEGINNINGS, PromptMemory
from vfx.interception.relay import read_prompt
from vfx.interception.session import Session
from vfx.messages import Message

TEXTS = st.sampled_from(["a", "b", "\u00e9", "\\", ']}"', "\U0001f30d"])
NUMBERS: list[Any] = [1, True, 1.0]


def question(text: str) -> Any:
    return {"role": "user", "content": text}


def chat_result(text: str, number: Any) -> Any:
    return {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": text, "n": number}]}


def claude_result(text: str, number: Any) -> Any:
    result = {"type": "tool_result", "tool_use_id": "c", "content": str(number)}
    return {"role": "user", "content": [result, {"type": "text", "text": text, "cache_control": {"n": number}}]}


def items(result: Callable[[str, Any], Any]) -> st.SearchStrategy[Any]:
    return st.builds(question, TEXTS) | st.builds(result, TEXTS, st.sampled_from(NUMBERS))


@pytest.mark.parametrize(("dialect", "result"), [(CHAT, chat_result), (ANTHROPIC, claude_result)])
@given(data=st.data())
def test_it_reads_as_if_it_knew_nothing(
    dialect: Dialect, result: Callable[[str, Any], Any], data: st.DataObject
) -> None:
    session = new_session()
    messages: list[Any] = []
    for _ in range(data.draw(st.integers(1, 8))):
        messages = [*messages[: data.draw(st.integers(0, 8))], *data.draw(st.lists(items(result), max_size=6))]
        body = {"system": "s", "messages": messages, "model": "m"}
        raw = json.dumps(body, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=False).encode()
        document, prompt = read_prompt(dialect, raw, session)
        assert prompt == dialect.read_prompt(body)
        assert {**document.body, "messages": messages} == body
        assert document.replaced({**document.body}) == raw


def ask(session: Session, contents: list[str]) -> tuple[Document, list[Message]]:
    messages = [{"role": "user", "content": content} for content in contents]
    return read_prompt(CHAT, json.dumps({"messages": messages}).encode(), session)


def test_what_was_sent_before_is_neither_parsed_nor_read_again() -> None:
    session = new_session()
    first, one = ask(session, ["a", "b"])
    second, other = ask(session, ["a", "b", "c"])
    assert "messages" in first.body
    assert "messages" not in second.body
    assert all(mine is theirs for mine, theirs in zip(one, other, strict=False))
    assert [message.text for message in other] == ["a", "b", "c"]


def test_the_same_again_and_less_again_are_known() -> None:
    session = new_session()
    ask(session, ["a", "b", "c"])
    for contents in (["a", "b", "c"], ["a", "b"]):
        document, prompt = ask(session, contents)
        assert "messages" not in document.body
        assert [message.text for message in prompt] == contents


def test_a_changed_end_is_read_again() -> None:
    session = new_session()
    _, one = ask(session, ["a", "b", "c"])
    document, other = ask(session, ["a", "b", "c marked", "d"])
    assert "messages" not in document.body
    assert [message.text for message in other] == ["a", "b", "c marked", "d"]
    assert other[1] is one[1]


def test_sub_agents_are_remembered_side_by_side() -> None:
    session = new_session()
    for turn in range(1, 6):
        for agent in range(4):
            document, _ = ask(session, [f"{agent}-{n}" for n in range(turn)])
            assert ("messages" in document.body) == (turn == 1)


def test_memory_is_bounded_and_shares_its_lists() -> None:
    memory, new = PromptMemory(), list[tuple[int, list[Message]]]()
    for count in range(1, 2 * MAX_BEGINNINGS):
        text = json.dumps({"messages": [{"n": n} for n in range(count)]})
        listing = Listing("messages", memory)
        Document(text.encode(), listing)
        new = [(end, [Message("user", str(item))]) for end, item in listing.items or ()]
        memory.extend(text, listing.start, listing.known, new)
    assert len(new) == 1
    assert memory.find(json.dumps({"messages": [{"n": 0}]}), 13) is None


@pytest.mark.parametrize("end", ["", "]", "}", "] x", ",]", "}}"])
def test_what_is_malformed_behind_a_known_beginning_is_refused(end: str) -> None:
    session = new_session()
    raw = json.dumps({"messages": [{"role": "user", "content": "a"}]})
    read_prompt(CHAT, raw.encode(), session)
    with pytest.raises(ValueError, match=r"line 1 column"):
        read_prompt(CHAT, (raw[:-2] + end).encode(), session)


def test_a_wrong_message_behind_a_known_beginning_is_told_by_its_place() -> None:
    session = new_session()
    ask(session, ["a"])
    raw = b'{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 5}]}'
    with pytest.raises(ValueError, match=r"messages\[1\].content"):
        read_prompt(CHAT, raw, session)
