"""What the writers write, read back: the same answer, whole and streamed, in every dialect."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.clients.answers.answer import Answer, finish_word
from vfx.clients.answers.writers import WRITERS
from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT, DIALECTS, RESPONSES
from vfx.messages import Completion, Message, ToolCall, Usage

FOLDER = Path(__file__).parents[2] / "dialects/recorded"
RECORDED = {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}

texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.from_regex(r"[a-z]{3,8}_", fullmatch=True)
arguments = st.dictionaries(names, st.one_of(texts, st.integers()), max_size=3)
counts = st.one_of(st.none(), st.integers(0, 9))


def calls(kinds: tuple[str, ...]) -> st.SearchStrategy[tuple[ToolCall, ...]]:
    one = st.builds(ToolCall, st.uuids().map(str), names, arguments.map(json.dumps), st.sampled_from(kinds))
    return st.lists(one, max_size=3).map(tuple)


def usages(*, tells_reasoning: bool) -> st.SearchStrategy[Usage]:
    """As providers tell it: what was cached is part of the input."""
    reasoning = counts if tells_reasoning else st.none()
    known = st.builds(Usage, st.integers(10, 99), counts, counts, reasoning)
    return st.one_of(st.just(Usage()), known)


def completions(
    messages: st.SearchStrategy[Message], reasons: list[str | None], *, choices: int = 1, tells_reasoning: bool = True
) -> st.SearchStrategy[Completion]:
    some = st.lists(st.tuples(messages, st.sampled_from(reasons)), min_size=1, max_size=choices)
    usage = usages(tells_reasoning=tells_reasoning)

    def make(pairs: list[tuple[Message, str | None]], usage: Usage) -> Completion:
        return Completion(tuple(message for message, _ in pairs), tuple(word for _, word in pairs), usage, "a-model")

    return st.builds(make, some, usage)


chat_parts = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}), min_size=1, max_size=3)
chat_messages = st.builds(
    Message,
    role=st.just("assistant"),
    content=st.one_of(st.none(), texts, chat_parts),
    tool_calls=calls(("function", "custom")),
    reasoning=st.one_of(st.none(), texts.filter(bool)),
    refusal=st.one_of(st.none(), texts),
    extra=st.dictionaries(st.just("annotations"), st.just([{"type": "url_citation"}])),
)
response_parts = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("output_text"), "text": texts, "annotations": st.just([{"type": "url_citation"}])}
        ),
        st.just({"type": "web_search_call", "action": {"type": "search", "query": "q"}}),
    ),
    min_size=1,
    max_size=3,
)
response_messages = st.builds(
    Message,
    role=st.just("assistant"),
    content=st.one_of(st.none(), texts, response_parts),
    tool_calls=calls(("function", "custom", "local_shell")),
    reasoning=st.one_of(st.none(), texts.filter(bool)),
    refusal=st.one_of(st.none(), texts.filter(bool)),
    extra=st.dictionaries(st.sampled_from(["phase", "namespace"]), st.just("x")),
    opaque=st.lists(
        st.fixed_dictionaries({"type": st.just("reasoning"), "encrypted_content": texts.filter(bool)}), max_size=2
    ).map(tuple),
)
claude_parts = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": texts, "citations": st.just([{"type": "page"}])}),
        st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}),
    ),
    min_size=1,
    max_size=3,
)
claude_states = st.one_of(
    st.fixed_dictionaries({"type": st.just("thinking"), "signature": texts.filter(bool)}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": texts}),
)
claude_messages = st.builds(
    Message,
    role=st.just("assistant"),
    content=st.one_of(st.none(), texts, claude_parts),
    tool_calls=calls(("function",)),
    reasoning=st.one_of(st.none(), texts.filter(bool)),
    opaque=st.lists(claude_states, max_size=3),
)


def read_back(dialect: Dialect, completion: Completion, *, is_stream: bool) -> Completion:
    writer, answer = WRITERS[dialect.path], Answer(completion, "recorded_1", "last")
    if not is_stream:
        return dialect.read_completion(json.loads(json.dumps(writer.whole(answer))))
    stream = dialect.assemble({"n": len(completion.messages)})
    for piece in writer.stream(answer):
        stream.feed(piece)
    assert (stream.is_done, stream.is_complete, stream.error) == (True, True, None)
    return stream.completion()


def comparable(completion: Completion) -> Any:
    """All of it but for the ids, which are of the run that writes it; lists and tuples are alike."""
    messages = [
        (
            message.role,
            message.content,
            # Anthropic has arguments as an object, in no certain form.
            [(call.id, call.name, call.type, by_value(call.arguments)) for call in message.tool_calls],
            message.reasoning,
            message.refusal,
            dict(message.extra),
            list(message.opaque),
        )
        for message in completion.messages
    ]
    return messages, completion.finish_reasons, completion.usage, completion.model


def by_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recorded_exchange_is_written_as_it_was_read(name: str, *, is_stream: bool) -> None:
    record = RECORDED[name]
    dialect = DIALECTS[record["route"]]
    completion = dialect.read_completion(record["answer"])
    assert comparable(read_back(dialect, completion, is_stream=is_stream)) == comparable(completion)


@given(completions(chat_messages, ["stop", "length", "tool_calls", "eos", None], choices=3), st.booleans())
def test_a_chat_completion_is_written_as_it_was_read(completion: Completion, is_stream: bool) -> None:
    assert comparable(read_back(CHAT, completion, is_stream=is_stream)) == comparable(completion)


@given(completions(response_messages, ["completed", "max_output_tokens", "incomplete"]), st.booleans())
def test_a_response_is_written_as_it_was_read(completion: Completion, is_stream: bool) -> None:
    assert comparable(read_back(RESPONSES, completion, is_stream=is_stream)) == comparable(completion)


@given(completions(claude_messages, ["end_turn", "tool_use", "pause_turn", None], tells_reasoning=False), st.booleans())
def test_a_message_is_written_as_it_was_read(completion: Completion, is_stream: bool) -> None:
    assert comparable(read_back(ANTHROPIC, completion, is_stream=is_stream)) == comparable(completion)


@pytest.mark.parametrize(
    ("word", "has_calls", "expected"),
    [
        ("stop", False, ("stop", "completed", "end_turn")),
        ("completed", True, ("tool_calls", "completed", "tool_use")),
        ("completed", False, ("stop", "completed", "end_turn")),
        ("max_tokens", False, ("length", "max_output_tokens", "max_tokens")),
        ("tool_use", True, ("tool_calls", "completed", "tool_use")),
        ("pause_turn", False, ("pause_turn", "pause_turn", "pause_turn")),
        (None, False, (None, None, None)),
    ],
)
def test_reasons_are_told_in_the_words_of_the_dialect(
    word: str | None, expected: tuple[str | None, ...], *, has_calls: bool
) -> None:
    message = Message("assistant", "", (ToolCall("1", "f", "{}"),) if has_calls else ())
    answer = Answer(Completion((message,), (word,), Usage()), "1")
    assert tuple(finish_word(answer, 0, column) for column in range(3)) == expected
