from typing import Any, ClassVar

import pytest
from pydantic import Field, computed_field

from vfx.authoring.hooks import metric, reward, stop
from vfx.authoring.state import State, read_state
from vfx.authoring.task import Task
from vfx.authoring.toolset import Toolset, tool
from vfx.authoring.user import User
from vfx.trace.record import Agent, TaskRef, Trace, encode_record, state_data


class Counts(State):
    count: int = 0
    names: set[str] = Field(default_factory=set[str])

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.count


def test_each_field_needs_a_default() -> None:
    with pytest.raises(TypeError, match=r"Bad: a rollout starts with the defaults.*; without: count, name"):

        class Bad(State):  # pyright: ignore[reportUnusedClass]
            count: int
            fine: int = 0
            name: str


def test_a_default_that_does_not_fit_is_found_when_the_task_is_made() -> None:
    class Odd(State):
        count: int = "many"  # pyright: ignore[reportAssignmentType]

    with pytest.raises(TypeError, match=r"Bad.state_type: the defaults of Odd fail: .*"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            state_type: ClassVar = Odd


@pytest.mark.parametrize("kind", [int, "Counts", Counts()])
def test_a_state_type_is_a_subclass_of_state(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a subclass of vfx\.State, got "):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            state_type: ClassVar = kind


@pytest.mark.parametrize("mark", [reward, metric, stop])
def test_a_hook_can_ask_for_the_state_only_where_there_is_one(mark: Any) -> None:
    def hook(self: Any, state: Any) -> float:
        return state.count

    with pytest.raises(
        TypeError, match=r"Bad: counted asks for state, and the task has none: name a subclass of vfx\.State"
    ):
        type("Bad", (Task,), {"counted": mark(hook), "__module__": __name__})

    class Good(Task):
        state_type: ClassVar = Counts
        counted = mark(hook)

    assert Good().state_type is Counts


@pytest.mark.parametrize("name", ["setup", "finalize"])
def test_stages_and_users_are_held_to_the_same(name: str) -> None:
    def hook(self: Any, state: Any) -> None: ...

    with pytest.raises(TypeError, match=f"{name} asks for state, and the task has none"):
        type("Bad", (Task,), {name: hook, "__module__": __name__})

    class Talker(User):
        def respond(self, state: Any) -> None: ...

    with pytest.raises(TypeError, match="respond asks for state, and the task has none"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            user: ClassVar = Talker


def test_what_sees_no_single_rollout_gets_no_state() -> None:
    with pytest.raises(TypeError, match="asks for state; a check hook may ask for: runtime, task"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            state_type: ClassVar = Counts

            def check(self, state: Counts) -> bool:
                return True


def test_a_toolset_has_the_state_of_its_task() -> None:
    class Search(Toolset):
        state_type = Counts

        @tool
        def search(self) -> None:
            """Search."""

    class Good(Task):  # pyright: ignore[reportUnusedClass]
        toolsets: ClassVar = [Search]
        state_type: ClassVar = Counts

    with pytest.raises(TypeError, match="search has the state_type Counts, and the task none: name the same for both"):

        class Bad(Task):  # pyright: ignore[reportUnusedClass]
            toolsets: ClassVar = [Search]


def test_states_are_data_that_their_class_takes_back() -> None:
    state = Counts(count=2, names={"\ud800"})
    data = state_data(state)
    assert data == {"count": 2, "names": {"\ud800"}}
    assert read_state(Counts, data) == state
    trace = Trace(id="t", task=TaskRef("T", "k", 0, {}), rollout=0, agent=Agent("m", {}, {}))
    trace.state = state
    assert rb'"state":{"count":2,"names":["\ud800"]}' in encode_record(trace.to_record())


def test_what_is_assigned_is_checked() -> None:
    state = Counts()
    with pytest.raises(ValueError, match="count"):
        state.count = "many"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="total"):
        state.total = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_each_rollout_has_its_own() -> None:
    first, second = Counts(), Counts()
    first.names.add("x")
    assert second.names == set()
