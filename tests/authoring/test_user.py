from collections.abc import Sequence
from typing import ClassVar

import pytest
from pydantic import ValidationError

from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.user import GREETING, ModelUser, ScriptedUser, User
from vfx.errors import UserError
from vfx.messages import Message, ToolCall

pytestmark = pytest.mark.anyio


class Model:
    """Answers with what it was given, and keeps what it was asked."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.asked: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message]) -> Message:
        self.asked.append(messages)
        return Message("assistant", self.replies.pop(0))


class Errand(Task):
    goal: str = "a boat"


CONVERSATION = [
    Message("system", "Be brief."),
    Message("user", "Hi"),
    Message("assistant", "Let me look.", tool_calls=(ToolCall("1", "look", "{}"),)),
    Message("tool", "secret", tool_call_id="1"),
    Message("assistant", "A red one?"),
    Message("user", "No"),
    Message("assistant", "A blue one?"),
]


async def test_a_model_sees_the_conversation_from_the_other_side_and_no_tools() -> None:
    model = Model(" Yes, please. ")
    said = await ModelUser(instructions="You want {goal}, not {colour}.").respond(CONVERSATION, Errand(), model)
    assert said == "Yes, please."
    [[system, *turns]] = model.asked
    assert system.text.endswith("You want a boat, not {colour}.")
    assert "[DONE]" in system.text
    assert [(message.role, message.text) for message in turns] == [
        ("user", GREETING),
        ("assistant", "Hi"),
        ("user", "Let me look.\n\nA red one?"),
        ("assistant", "No"),
        ("user", "A blue one?"),
    ]


async def test_a_model_ends_the_conversation_by_the_marker() -> None:
    user, model = ModelUser(stop_marker="###"), Model("Thanks. ###", "more")
    assert await user.respond(CONVERSATION, Errand(), model) is None
    assert await user.respond(CONVERSATION, Errand(), model) == "more"


async def test_a_model_opens_the_conversation_of_a_task_without_a_prompt() -> None:
    model = Model("I need a boat.", "[DONE]", "  ")
    assert await ModelUser().open(Errand(), model) == "I need a boat."
    assert [message.role for message in model.asked[0]] == ["system", "user"]
    with pytest.raises(UserError, match="before it had begun"):
        await ModelUser().open(Errand(), model)
    with pytest.raises(UserError, match="without text"):
        await ModelUser().open(Errand(), model)


async def test_the_brief_may_depend_on_the_task() -> None:
    class Shopper(ModelUser):
        def brief(self, task: Errand) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return f"{super().brief(task)} You want {task.goal}."

    model = Model("ok")
    await Shopper(instructions="You are polite.").respond(CONVERSATION, Errand(goal="a kite"), model)
    assert model.asked[0][0].text.endswith("You are polite. You want a kite.")


def test_a_script_is_said_line_by_line() -> None:
    user = ScriptedUser(lines=("one", "two"))
    with_prompt, without = Task(prompt="x"), Task()
    assert [user.respond(with_prompt, turn) for turn in range(3)] == ["one", "two", None]
    assert user.open() == "one"
    assert [user.respond(without, turn) for turn in range(2)] == ["two", None]
    with pytest.raises(UserError, match=r"--taskset\.task\.user\.lines"):
        ScriptedUser().open()


def test_mistakes_in_a_class_are_found_when_it_is_made() -> None:
    with pytest.raises(TypeError, match=r"Curious\.respond asks for weather; a respond hook may ask for: .*messages"):

        class Curious(User):  # pyright: ignore[reportUnusedClass]
            def respond(self, weather: str) -> None: ...

    with pytest.raises(TypeError, match=r"Asking\.respond asks for ask, which subclasses of vfx\.ModelUser get"):

        class Asking(User):  # pyright: ignore[reportUnusedClass]
            def respond(self, ask: object) -> None: ...

    with pytest.raises(TypeError, match="a field can't be named messages"):

        class Named(User):  # pyright: ignore[reportUnusedClass]
            messages: str = ""

    class Mute(User):
        pass

    with pytest.raises(TypeError, match=r"Talk\.user: Mute has no method respond"):

        class Talk(Task):  # pyright: ignore[reportUnusedClass]
            user: ClassVar[type[User] | None] = Mute


class Quiz(Task):
    user: ClassVar[type[User] | None] = ScriptedUser


class Quizzes(Taskset[Quiz]):
    pass


def test_the_fields_of_a_tasks_user_are_options() -> None:
    given = Quizzes.model_validate({"task": {"user": {"lines": ["a"]}}})
    assert getattr(given.task, "user", None) == ScriptedUser(lines=("a",))
    assert getattr(Quizzes().task, "user", None) == ScriptedUser()
    with pytest.raises(ValidationError, match="linse"):
        Quizzes.model_validate({"task": {"user": {"linse": ["a"]}}})
    with pytest.raises(ValidationError, match="user"):
        Taskset.model_validate({"task": {"user": {"lines": ["a"]}}})
