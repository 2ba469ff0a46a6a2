from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.messages import Content, Message, ToolCall
from vfx.trace import graph as graph_module
from vfx.trace.graph import MessageGraph, message_hash


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def test_a_known_prefix_is_stored_once() -> None:
    graph = MessageGraph()
    graph.commit([user("a")], [assistant("b")])
    graph.commit([user("a"), assistant("b"), user("c")], [assistant("d")])
    assert [node.message.text for node in graph.nodes] == ["a", "b", "c", "d"]
    assert [node.sampled for node in graph.nodes] == [False, True, False, True]


def test_a_rewritten_history_is_a_branch() -> None:
    graph = MessageGraph()
    graph.commit([user("a")], [assistant("b")])
    [leaf] = graph.commit([user("a"), assistant("not b"), user("c")], [assistant("d")])
    assert [message.text for message in graph.path(leaf)] == ["a", "not b", "c", "d"]
    assert len(graph.leaves()) == 2


def test_the_same_question_again_is_a_new_answer() -> None:
    graph = MessageGraph()
    first = graph.commit([user("a")], [assistant("b")])
    second = graph.commit([user("a")], [assistant("b")])
    assert first != second
    assert graph.nodes[second[0]].parent == graph.nodes[first[0]].parent == 0


def test_conversations_with_other_tools_share_nothing() -> None:
    graph = MessageGraph()
    graph.commit([user("a")], [assistant("b")], tools=[{"name": "x"}])
    graph.commit([user("a")], [assistant("b")], tools=[{"name": "y"}])
    assert [node.parent for node in graph.nodes] == [None, 0, None, 2]


def test_no_content_equals_empty_content() -> None:
    assert message_hash(Message("assistant", None)) == message_hash(Message("assistant", ""))


def test_json_arguments_compare_by_value() -> None:
    one = Message("assistant", tool_calls=(ToolCall("1", "f", '{"a": 1, "b": 2}'),))
    other = Message("assistant", tool_calls=(ToolCall("1", "f", '{"b":2,"a":1}'),))
    assert message_hash(one) == message_hash(other)


def test_an_answer_is_known_again_with_and_without_its_reasoning() -> None:
    graph = MessageGraph()
    answer = Message("assistant", "b", reasoning="because")
    graph.commit([user("a")], [answer])
    graph.commit([user("a"), answer, user("c")], [assistant("d")])
    graph.commit([user("a"), assistant("b"), user("c")], [assistant("e")])
    assert [node.parent for node in graph.nodes] == [None, 0, 1, 2, 2]


def test_an_answer_is_known_again_without_what_only_the_provider_reads() -> None:
    graph = MessageGraph()
    answer = Message("assistant", "b", reasoning="because", opaque=({"signature": "s"},))
    graph.commit([user("a")], [answer])
    for other in (
        answer,
        replace(answer, opaque=[{"signature": "s"}]),
        replace(answer, reasoning=None),
        replace(answer, opaque=()),
        replace(answer, reasoning=None, opaque=()),
    ):
        [leaf] = graph.commit([user("a"), other], [assistant("c")])
        assert graph.nodes[leaf].parent == 1


def test_another_signature_is_another_answer() -> None:
    graph = MessageGraph()
    graph.commit([user("a")], [Message("assistant", "b", opaque=({"signature": "s"},))])
    graph.commit([user("a"), Message("assistant", "b", opaque=({"signature": "t"},))], [assistant("c")])
    assert len(graph.leaves()) == 2


SAME: list[tuple[Content, Content]] = [
    ("a", [{"type": "text", "text": "a"}]),
    ("a", [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}, "citations": None}]),
    ("a", [{"type": "output_text", "text": "a", "annotations": []}, {"type": "output_text", "text": ""}]),
    (None, []),
    ([{"type": "image", "x": 1, "cache_control": {}}], [{"x": 1, "type": "image", "y": None}]),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_contents_that_say_the_same_are_equal(one: Content, other: Content) -> None:
    assert message_hash(Message("user", one)) == message_hash(Message("user", other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", [{"type": "vendor", "text": "a"}]),
        ("ab", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        ([{"type": "image", "x": 1}], [{"type": "image", "x": 2}]),
        (None, [{"type": "image"}]),
    ],
)
def test_contents_that_differ_are_told_apart(one: Content, other: Content) -> None:
    assert message_hash(Message("user", one)) != message_hash(Message("user", other))


@pytest.mark.parametrize("arguments", ["", "null", " {} "])
def test_no_arguments_equal_an_empty_object(arguments: str) -> None:
    hashes = [message_hash(Message("assistant", tool_calls=(ToolCall("1", "f", text),))) for text in (arguments, "{}")]
    assert hashes[0] == hashes[1]


def test_arguments_that_are_no_json_are_compared_as_they_are() -> None:
    deep = "[" * 100_000
    hashes = {message_hash(Message("assistant", tool_calls=(ToolCall("1", "f", text),))) for text in ("{", deep, "[]")}
    assert len(hashes) == 3


def test_cache_markers_on_tools_do_not_make_another_conversation() -> None:
    graph = MessageGraph()
    graph.commit([user("a")], [assistant("b")], tools=[{"name": "x"}])
    graph.commit([user("a")], [assistant("b")], tools=[{"name": "x", "cache_control": {"type": "ephemeral"}}])
    assert [node.parent for node in graph.nodes] == [None, 0, 0]


def test_lone_surrogates_have_a_hash() -> None:
    assert message_hash(user("\ud835")) != message_hash(user("\ufffd"))


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), max_size=12))
def test_each_turn_reads_back_as_it_was_committed(prompts: list[list[str]]) -> None:
    graph = MessageGraph()
    for number, prompt in enumerate(prompts):
        [leaf] = graph.commit([user(text) for text in prompt], [assistant(str(number))])
        assert [message.text for message in graph.path(leaf)] == [*prompt, str(number)]
    reached = {index for leaf in graph.leaves() for index in graph.ancestry(leaf)}
    assert reached == set(range(len(graph.nodes)))


class PlainGraph(MessageGraph):
    """Remembers no prompt: every message of every turn is hashed and looked up."""

    def commit(self, *args: Any, **options: Any) -> list[int]:
        self._trails.clear()
        return super().commit(*args, **options)


CONTENTS = st.sampled_from(["a", "b", None, "", [{"n": 1}], [{"n": True}], [{"n": 1.0}], [{"text": "a"}]])
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    CONTENTS,
    reasoning=st.sampled_from([None, "r"]),
    extra=st.sampled_from([{}, {"x": 1}]),
)
TURNS = st.tuples(
    st.booleans(),  # goes on from the last conversation, or starts from its beginning
    st.integers(0, 6),
    st.lists(MESSAGES, max_size=3),
    st.lists(MESSAGES, min_size=1, max_size=2),
    st.sampled_from([None, [{"name": "x"}], [{"name": "y"}]]),
    st.booleans(),
)


@given(st.lists(TURNS, max_size=14))
def test_remembered_prompts_change_nothing(turns: list[Any]) -> None:
    remembering, plain = MessageGraph(), PlainGraph()
    history: list[Message] = []
    for goes_on, kept, new, answers, tools, is_copied in turns:
        prompt = [*(history if goes_on else history[:kept]), *new]
        if is_copied:
            prompt = [Message(m.role, m.content, reasoning=m.reasoning, extra=m.extra) for m in prompt]
        assert remembering.commit(prompt, answers, tools=tools) == plain.commit(prompt, answers, tools=tools)
        assert remembering.nodes == plain.nodes
        history = [*prompt, answers[0]]


def count_hashes(work: Callable[[], object]) -> list[str]:
    """The texts of the messages that `work` hashes."""
    hashed: list[str] = []
    plain = graph_module.message_hash

    def counting(message: Message) -> bytes:
        hashed.append(message.text)
        return plain(message)

    graph_module.message_hash = counting
    try:
        work()
    finally:
        graph_module.message_hash = plain
    return hashed


def test_a_repeated_prefix_is_not_hashed_again() -> None:
    graph = MessageGraph()
    graph.commit([user(str(number)) for number in range(50)], [assistant("x")])
    again = [*(user(str(number)) for number in range(50)), assistant("x"), user("y")]
    assert count_hashes(lambda: graph.commit(again, [assistant("z")])) == ["x", "y", "z"]


def test_sub_agents_that_take_turns_are_not_hashed_again() -> None:
    graph = MessageGraph()
    agents, turns = graph_module.MAX_TRAILS, 3
    hashed = count_hashes(
        lambda: [
            graph.commit([user(f"{agent}-{n}") for n in range(turn + 1)], [assistant("x")])
            for turn in range(turns)
            for agent in range(agents)
        ]
    )
    assert len(hashed) == agents * turns * 2


def test_long_texts_differ_by_their_end() -> None:
    long = "x" * graph_module.LONG_TEXT
    assert message_hash(user(long + "a")) != message_hash(user(long + "b"))
    assert message_hash(Message("user", [{"text": long}])) == message_hash(Message("user", [{"text": long}]))


def test_prepared_messages_are_committed_alike() -> None:
    prepared, plain = MessageGraph(), MessageGraph()
    prompt = [user("x" * graph_module.LONG_TEXT), user("short")]
    prepared.prepare(prompt)
    assert prepared.commit(prompt, [assistant("a")]) == plain.commit(prompt, [assistant("a")])
    assert prepared.nodes == plain.nodes
