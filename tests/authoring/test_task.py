from typing import Any

import pytest
from pydantic import ValidationError

from vfx.authoring.hooks import hooks_of, metric, reward, stop
from vfx.authoring.task import Task
from vfx.messages import Message
from vfx.trace.record import Trace


class Sum(Task):
    answer: int

    @reward(weight=0.5)
    def right(self, trace: Trace) -> float:
        return float(trace.last_reply == str(self.answer))

    @metric
    def chars(self, trace: Trace) -> float:
        return len(trace.last_reply)

    @stop
    async def has_answered(self, trace: Trace) -> bool:
        return bool(trace.last_reply)


def test_hooks_are_found_by_kind() -> None:
    [right] = hooks_of(Sum, "reward")
    assert (right.name, right.weight, right.parameters, right.is_async) == ("right", 0.5, ("trace",), False)
    assert [hook.name for hook in hooks_of(Sum, "metric")] == ["chars"]
    assert [hook.is_async for hook in hooks_of(Sum, "stop")] == [True]


def test_a_subclass_inherits_and_overrides_hooks() -> None:
    class Harder(Sum):
        @reward
        def right(self, trace: Trace) -> float:
            return 0.0

        @reward
        def also(self, trace: Trace) -> float:
            return 1.0

    assert [(hook.name, hook.weight) for hook in hooks_of(Harder, "reward")] == [("right", 1.0), ("also", 1.0)]


def test_a_hook_that_asks_for_something_unknown_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="asks for trase; a hook may ask for: runtime, task, trace"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            @reward
            def right(self, trase: Trace) -> float:
                return 0.0


def test_a_field_named_like_a_hook_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="a field can't be named setup"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            setup: str = ""


def test_tasks_are_frozen_and_refuse_unknown_fields() -> None:
    with pytest.raises(ValidationError):
        Sum(answer=1, anwser=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        Sum(answer=1).answer = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_key_follows_the_content() -> None:
    assert Sum(answer=1).key == Sum(answer=1).key != Sum(answer=2).key
    assert len(Sum(answer=1).key) == 16


def test_key_can_be_overridden() -> None:
    class Named(Task):
        @property
        def key(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
            return f"task-{self.id}"

    assert Named(id="7").key == "task-7"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt": "hi"}, [Message("user", "hi")]),
        ({"prompt": "hi", "system_prompt": "be kind"}, [Message("system", "be kind"), Message("user", "hi")]),
        ({"prompt": None}, []),
        ({"prompt": ({"role": "user", "content": [{"type": "text", "text": "hi"}]},)}, None),
    ],
)
def test_prompt_becomes_messages(fields: dict[str, Any], expected: list[Message] | None) -> None:
    messages = Task(**fields).messages()
    if expected is None:
        assert [message.text for message in messages] == ["hi"]
    else:
        assert messages == expected


def test_system_prompt_of_the_run_replaces_that_of_the_task() -> None:
    assert Task(prompt="hi", system_prompt="a").messages("b")[0] == Message("system", "b")


def test_a_prompt_without_roles_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"prompt\[0\]\.role"):
        Task(prompt=({"content": "hi"},)).messages()
