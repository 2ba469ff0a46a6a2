from collections.abc import Sequence

import pytest

from tests.support.traces import make_trace
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.authoring.user import User
from vfx.errors import HarnessError, ProviderError, UserError
from vfx.messages import Message
from vfx.runner.speaking import RolloutUser
from vfx.trace.record import Call, Rewrite, Span, Trace

pytestmark = pytest.mark.anyio


class Listener(User):
    """Tells what it was given."""

    def respond(self, messages: Sequence[Message], turn: int, task: Task, trace: Trace) -> str:
        said = "; ".join(f"{message.role}: {message.text}" for message in messages)
        return f"{turn} {task.prompt} {trace.num_turns}: {said}"


class Opener(User):
    async def open(self, task: Task) -> str:
        return f"I open {task.name}"

    def respond(self) -> None: ...


class Numbering(User):
    def respond(self) -> int:
        return 3


class Endless(User):
    def respond(self) -> str:
        return "more"


class Failing(User):
    def respond(self) -> None:
        raise ValueError("no idea")


def speaker(user: User, task: Task | None = None, trace: Trace | None = None) -> RolloutUser:
    task, trace = task or Task(prompt="2 + 2?"), trace or make_trace(reply=None)
    return RolloutUser(user, task, trace, {"task": task, "trace": trace}, HookThreads())


def turn(trace: Trace, prompt: Sequence[Message], reply: str) -> None:
    nodes = trace.graph.commit(prompt, [Message("assistant", reply)])
    trace.calls.append(Call("m", {}, "http://127.0.0.1", Span(0.0, 1.0), nodes=nodes))


async def test_the_user_hears_each_answer_once() -> None:
    task, trace = Task(prompt="2 + 2?"), make_trace()
    user = speaker(Listener(), task, trace)
    opening = await user.opened(task.messages())
    assert opening == task.messages()
    first = await user.respond()
    assert first == "0 2 + 2? 1: user: 2 + 2?; assistant: four"
    with pytest.raises(HarnessError, match="no answer since they spoke"):
        await user.respond()
    turn(trace, [*trace.messages, Message("user", first)], "five")
    assert await user.respond() == f"1 2 + 2? 2: user: 2 + 2?; assistant: four; user: {first}; assistant: five"


async def test_what_a_program_adds_in_the_users_name_is_left_out() -> None:
    task, trace = Task(prompt="Fix it"), make_trace(reply=None)
    user = speaker(Listener(), task, trace)
    await user.opened([Message("system", "s"), *task.messages()])
    wrapped = Message("user", [{"type": "text", "text": "<context>"}, {"type": "text", "text": "Task: Fix it!"}])
    turn(trace, [Message("user", "<folder>"), wrapped], "done")
    assert await user.respond() == "0 Fix it 1: user: Fix it; assistant: done"


async def test_a_conversation_that_was_summed_up_stays_as_it_is() -> None:
    task, trace = Task(prompt="Fix it"), make_trace(reply=None)
    user = speaker(Listener(), task, trace)
    await user.opened(task.messages())
    turn(trace, [Message("user", "So far: all is well.")], "done")
    assert await user.respond() == "0 Fix it 1: user: So far: all is well.; assistant: done"


async def test_the_last_answer_is_the_one_that_the_program_got() -> None:
    trace = make_trace()
    answer = trace.messages[-1]
    trace.rewrites.append(Rewrite("mask", "response", answer, Message("assistant", "***")))
    assert (await speaker(Listener(), trace=trace).respond() or "").endswith("assistant: ***")


async def test_nobody_is_asked_when_the_conversation_has_been_stopped() -> None:
    trace = make_trace()
    trace.stop_condition = "max_turns"
    assert await speaker(Failing(), trace=trace).respond() is None


async def test_nobody_is_asked_when_the_model_may_not_answer_any_more() -> None:
    task, trace = Task(prompt="2 + 2?"), make_trace()
    user = RolloutUser(Failing(), task, trace, {}, HookThreads(), has_turns_left=lambda: False)
    assert await user.respond() is None


async def test_a_user_who_never_ends_is_heard_as_often_as_its_bound_says() -> None:
    trace = make_trace()
    user = speaker(Endless(max_turns=2), trace=trace)
    assert await user.respond() == "more"
    turn(trace, trace.messages, "five")
    assert await user.respond() == "more"
    assert trace.stop_condition is None
    turn(trace, trace.messages, "six")
    assert await user.respond() is None
    assert trace.stop_condition == "user_max_turns"


async def test_the_user_opens_when_the_task_does_not() -> None:
    user = speaker(Opener(), Task(name="it"))
    system = Message("system", "s")
    assert await user.opened([system]) == [system, Message("user", "I open it")]
    assert await speaker(Opener()).opened([system]) == [system]
    assert await speaker(Listener(), Task()).opened([system]) == [system]


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (Numbering(), "respond of Numbering must give text, or None to end, got 3"),
        (Failing(), "respond of Failing: ValueError: no idea"),
    ],
)
async def test_what_a_user_does_wrong_is_the_users_error(user: User, message: str) -> None:
    with pytest.raises(UserError) as caught:
        await speaker(user, trace=make_trace()).respond()
    assert str(caught.value) == message


class Cut(User):
    async def respond(self) -> None:
        raise ProviderError("429: too many", fatal="a wrong key")


async def test_a_failure_of_its_model_is_the_users_error_too() -> None:
    with pytest.raises(UserError, match="respond of Cut: 429: too many") as caught:
        await speaker(Cut(), trace=make_trace()).respond()
    assert caught.value.fatal == "a wrong key"
    assert isinstance(caught.value.__cause__, ProviderError)
