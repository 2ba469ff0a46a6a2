from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.interception.stage import new_session
from vfx.errors import TaskError
from vfx.interception.rewriting import Intercept, Rewriter
from vfx.messages import Message, ToolCall
from vfx.trace.record import Trace

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", "rm", "{}")
OTHER = ToolCall("c2", "ls", "{}")
ANSWER = Message("assistant", "Well.", tool_calls=(CALL, OTHER))


def result(content: str, call: str = "c1") -> Message:
    return Message("tool", content, tool_call_id=call)


def new_rewriter(
    direction: str, function: Callable[[Message], Any], *more: Callable[[Message], Any], trace: Trace | None = None
) -> Rewriter:
    def hook(function: Callable[[Message], Any]) -> Intercept:
        async def call(message: Message) -> Any:
            await anyio.lowlevel.checkpoint()
            return function(message)

        return Intercept("censor", direction, call)

    return Rewriter([hook(each) for each in (function, *more)], trace or new_session().trace)


async def test_a_tool_result_is_rewritten_once_and_pinned() -> None:
    seen: list[Message] = []

    def censor(message: Message) -> Message | None:
        seen.append(message)
        return replace(message, content="[cut]") if "secret" in message.text else None

    trace = new_session().trace
    rewriter = new_rewriter("request", censor, trace=trace)
    prompt = [Message("user", "secret"), ANSWER, result("a secret"), result("plain", "c2")]
    for _ in range(3):
        new, contents = await rewriter.rewrite_results(prompt)
        assert [message.text for message in new] == ["secret", "Well.", "[cut]", "plain"]
        assert contents == {"c1": "[cut]"}
    assert [message.text for message in seen] == ["a secret", "plain"]
    assert [(rewrite.before.text, rewrite.after.text) for rewrite in trace.rewrites] == [("a secret", "[cut]")]


async def test_concurrent_calls_show_a_result_once() -> None:
    seen: list[Message] = []
    rewriter = new_rewriter("request", seen.append)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(rewriter.rewrite_results, [result("x")])
    assert len(seen) == 1


async def test_another_result_of_the_same_call_is_shown_too() -> None:
    rewriter = new_rewriter("request", lambda message: replace(message, content=message.text + "!"))
    await rewriter.rewrite_results([result("x")])
    assert (await rewriter.rewrite_results([result("y")]))[1] == {"c1": "y!"}


async def test_hooks_see_what_the_one_before_made() -> None:
    rewriter = new_rewriter(
        "request",
        lambda message: replace(message, content=message.text + "1"),
        lambda message: replace(message, content=message.text + "2"),
    )
    assert (await rewriter.rewrite_results([result("x")]))[1] == {"c1": "x12"}


async def test_an_answer_loses_a_tool_call() -> None:
    trace = new_session().trace
    rewriter = new_rewriter(
        "response", lambda message: replace(message, content="No.", tool_calls=(OTHER,)), trace=trace
    )
    [answer] = await rewriter.rewrite_answers([ANSWER])
    assert (answer.text, answer.tool_calls) == ("No.", (OTHER,))
    assert [rewrite.before for rewrite in trace.rewrites] == [ANSWER]


async def test_what_is_left_alone_is_the_same_object_and_not_recorded() -> None:
    trace = new_session().trace
    rewriter = new_rewriter("response", lambda message: replace(message), trace=trace)
    assert (await rewriter.rewrite_answers([ANSWER]))[0] is ANSWER
    assert trace.rewrites == []


@pytest.mark.parametrize(
    ("direction", "given", "words"),
    [
        ("request", "text", "gave str; expected a vfx.Message, or None"),
        ("request", Message("user", "x", tool_call_id="c1"), "changed more than the content"),
        ("response", replace(ANSWER, role="user"), "changed more than the text and the tool calls"),
        ("response", replace(ANSWER, tool_calls=(ToolCall("c1", "rm", "other"),)), "calls can only be left out"),
    ],
)
async def test_a_hook_may_not_change_everything(direction: str, given: Any, words: str) -> None:
    rewriter = new_rewriter(direction, lambda message: given)
    rewrite = rewriter.rewrite_results if direction == "request" else rewriter.rewrite_answers
    with pytest.raises(TaskError, match=words):
        await rewrite([result("x") if direction == "request" else ANSWER])
