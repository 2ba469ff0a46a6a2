import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from vfx.authoring.hooks import HOOK_KINDS, hooks_of, metric, reward, stop
from vfx.authoring.task import Task
from vfx.messages import Message
from vfx.trace.record import Trace, encode_record


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
    allowed = "judge, runtime, state, task, trace"
    with pytest.raises(TypeError, match=f"asks for trase; a reward hook may ask for: {allowed}"):

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


LONE = "\ud835"


def test_text_may_hold_lone_surrogates() -> None:
    class Nested(BaseModel):
        text: str

    class Odd(Task):
        answer: str
        more: dict[str, list[str | None]]
        inner: Nested | None = None

    task = Odd(prompt=f"a {LONE}", answer=LONE, id=LONE, more={LONE: [LONE, None]}, tags=(LONE,))
    assert (task.answer, task.id, task.more) == (LONE, LONE, {LONE: [LONE, None]})
    assert task.messages() == [Message("user", f"a {LONE}")]
    assert task.key == Odd(**task.data).key
    assert json.loads(encode_record(task.data))["answer"] == LONE
    assert Odd.model_validate({"answer": "x", "more": {}, "inner": {"text": LONE}}).inner == Nested.model_construct(
        text=LONE
    )


def test_text_is_still_checked() -> None:
    class Short(Task):
        answer: str = Field(max_length=2)

    with pytest.raises(ValidationError):
        Short(answer=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError):
        Short(answer="long")


def test_a_changed_copy_has_its_own_key() -> None:
    task = Sum(answer=1)
    assert task.key != task.model_copy(update={"answer": 2}).key == Sum(answer=2).key


def test_a_task_can_be_sent_to_another_process() -> None:
    task = Sum(answer=1)
    assert task.key
    task.use_hooks(dict.fromkeys(HOOK_KINDS, ()))
    copy = pickle.loads(pickle.dumps(task))  # noqa: S301 - just made
    assert copy == task
    assert copy.hooks("metric")[0].name == "chars"
