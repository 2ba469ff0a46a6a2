from hypothesis import given
from hypothesis import strategies as st

from vfx.messages import Message, ToolCall
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
