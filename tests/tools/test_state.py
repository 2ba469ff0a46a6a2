"""What tools see of their rollout's state: the real client against a real interception, in one process and several."""

import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pydantic import Field

from tests.interception.stage import new_session
from tests.support.command import environment
from vfx.authoring.caller import Caller, caller
from vfx.authoring.shared_state import SharedState, StateConflictError, StateError
from vfx.authoring.state import State
from vfx.authoring.toolset import Toolset, tool
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.clients.shared_state import connected
from vfx.interception.base import ElasticSettings, Interception, create_interception
from vfx.interception.session import Session

pytestmark = pytest.mark.anyio


class Counts(State):
    count: int = 0
    names: list[str] = Field(default_factory=list[str])


class Counter(Toolset):
    state_type = Counts

    @tool
    async def count(self) -> int:
        """Count."""
        async with self.state.change() as state:
            state.count += 1
        return state.count

    @tool
    def count_in_thread(self) -> int:
        """Count."""
        with self.state.blocking.change() as state:
            state.count += 1
        return state.count


@asynccontextmanager
async def serving() -> AsyncGenerator[Interception]:
    interception = create_interception(ElasticSettings(multiplex=8), ScriptedClient(ScriptedSettings()))
    async with interception.serving(), connected():
        yield interception


@asynccontextmanager
async def called(
    interception: Interception, state: State | None = None, **data: Any
) -> AsyncGenerator[tuple[Session, Caller]]:
    """A rollout with its slot; inside, it is the one whose call is served."""
    session = new_session(state=state, data=data)
    async with interception.acquire(session) as slot:
        rollout = Caller(slot.state_url, slot.state_key)
        token = caller.set(rollout)
        try:
            yield session, rollout
        finally:
            caller.reset(token)


def two_more(state: Counts) -> Counts:
    return Counts(count=state.count + 2)


async def in_thread(function: Any, *arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(function, *arguments)


async def test_a_typed_state_is_read_changed_and_written() -> None:
    async with serving() as interception, called(interception, Counts(count=4), prompt="Hi") as (session, _):
        tools = Counter()
        assert await tools.count() == 5
        state = await tools.state.get()
        assert state == Counts(count=5)
        await tools.state.put(Counts(count=1, names=["a"]))
        assert session.trace.state == Counts(count=1, names=["a"])
        assert await tools.state.update(lambda state: state.names.append("b")) == Counts(count=1, names=["a", "b"])
        assert (await tools.task())["prompt"] == "Hi"
    assert session.trace.state.names == ["a", "b"]


async def test_plain_tools_do_the_same_in_their_threads() -> None:
    async with serving() as interception, called(interception, Counts(), prompt="Hi") as (session, _):
        tools = Counter()
        blocking = tools.state.blocking
        assert await in_thread(tools.count_in_thread) == 1
        assert await in_thread(blocking.get) == Counts(count=1)
        await in_thread(blocking.put, {"names": ["a"]})
        await in_thread(blocking.update, two_more)
        assert (await in_thread(blocking.task))["prompt"] == "Hi"
    assert session.trace.state == Counts(count=2)


async def test_without_a_declared_type_the_state_is_plain_data() -> None:
    class Other(Toolset):
        pass

    async with serving() as interception, called(interception, Counts()) as (session, _):
        async with Other().state.change() as state:
            state["count"] += 1
        with pytest.raises(StateError, match="expected a mapping as the state, got 3"):
            await Other().state.put(3)  # pyright: ignore[reportArgumentType]
    assert session.trace.state == Counts(count=1)


async def test_what_does_not_fit_is_told_by_the_name_of_the_field() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):
        state = SharedState(None)
        with pytest.raises(StateError, match=r"^count: expected a whole number, got 'x'$"):
            await state.put({"count": "x"})
        with pytest.raises(StateError, match=r"^names.0: expected text, got 1$"):
            await Counter().state.update(lambda counts: counts.names.append(1))
        with pytest.raises(StateError, match="has no JSON form"):
            await state.put({"count": float("nan")})
    assert session.trace.state == Counts()


async def test_an_error_in_the_body_of_a_change_leaves_the_state() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):
        for attempt in range(2):
            with contextlib.suppress(ZeroDivisionError):
                async with Counter().state.change() as state:
                    state.count = attempt // 0
        assert session.trace.state == Counts()
        assert await Counter().count() == 1


async def test_changes_of_one_process_take_turns_whether_they_run_in_threads_or_not() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):
        tools = Counter()
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(tools.count)
                group.start_soon(in_thread, tools.count_in_thread)
    assert session.trace.state.count == 40


async def test_a_change_that_another_process_has_overtaken_is_refused() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):

        async def change() -> None:
            async with Counter().state.change() as state:
                state.count = 1
                await SharedState(Counts).put(Counts(count=7))

        with pytest.raises(StateConflictError, match="use update"):
            await change()
    assert session.trace.state.count == 7


async def test_update_calls_its_function_again_with_what_another_process_wrote() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):
        seen: list[int] = []

        async def add(state: Counts) -> None:
            seen.append(state.count)
            if len(seen) == 1:
                await SharedState(Counts).put(Counts(count=10))
            state.count += 1

        await Counter().state.update(add)
    assert seen == [0, 10]
    assert session.trace.state.count == 11


WRITER = """
import json, sys
import anyio
from vfx.authoring.caller import Caller, caller
from vfx.authoring.shared_state import SharedState
from vfx.clients.shared_state import connected

async def main():
    caller.set(Caller(**json.loads(sys.stdin.readline())))

    async def add(state):
        state["count"] += 1
        state["names"].append("x")

    async with connected():
        for _ in range(25):
            await SharedState(None).update(add)

anyio.run(main)
"""


async def test_writers_in_several_processes_lose_no_update() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, rollout):
        told = json.dumps({"state_url": rollout.state_url, "state_key": rollout.state_key}).encode() + b"\n"

        async def write() -> None:
            done = await anyio.run_process([sys.executable, "-c", WRITER], input=told, env=environment(), check=False)
            assert done.returncode == 0, done.stderr.decode()

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(write)
    assert session.trace.state == Counts(count=75, names=["x"] * 75)


async def test_calls_of_many_rollouts_to_one_process_never_mix() -> None:
    async with serving() as interception, AsyncExitStack() as stack:
        sessions: list[Session] = []

        async def call(rollout: Caller, number: int) -> None:
            caller.set(rollout)
            for _ in range(3):
                await SharedState(Counts).update(lambda state: state.names.append(str(number)))

        async with anyio.create_task_group() as group:
            for number in range(32):
                session, rollout = await stack.enter_async_context(called(interception, Counts()))
                sessions.append(session)
                group.start_soon(call, rollout, number)
    assert [session.trace.state.names for session in sessions] == [[str(number)] * 3 for number in range(32)]


async def test_a_call_after_the_end_says_so() -> None:
    async with serving() as interception:
        async with called(interception, Counts()) as (session, rollout):
            pass
        caller.set(rollout)
        with pytest.raises(StateError, match=r"^the rollout has ended$"):
            await Counter().count()
    assert session.trace.state == Counts()


async def test_a_call_that_is_cut_off_lets_the_next_one_in() -> None:
    async with serving() as interception, called(interception, Counts()) as (session, _):
        tools = Counter()
        with anyio.move_on_after(0.05):
            async with tools.state.change() as state:
                state.count = 100
                await anyio.sleep(5)
        with anyio.fail_after(5):
            assert await tools.count() == 1
    assert session.trace.state.count == 1


async def test_where_there_is_no_rollout_or_no_state_the_error_says_so() -> None:
    with pytest.raises(StateError, match="no rollout of a run is calling"):
        await Counter().state.get()
    async with serving() as interception, called(interception):
        with pytest.raises(StateError, match="T names no state_type"):
            await Counter().state.get()


async def test_a_type_that_is_not_the_tasks_is_told() -> None:
    class Others(State):
        other: int = 0

    async with serving() as interception, called(interception, Counts()):
        with pytest.raises(StateError, match="is no Others: count: there is no such field; there are: other"):
            await SharedState(Others).get()


async def test_a_change_within_a_change_is_refused_instead_of_waiting_for_itself() -> None:
    async with serving() as interception, called(interception, Counts()):
        tools = Counter()

        def nest() -> None:
            with tools.state.blocking.change():
                tools.count_in_thread()

        with anyio.fail_after(5):
            with pytest.raises(StateError, match="a change can't hold another one"):
                async with tools.state.change():
                    await tools.count()
            with pytest.raises(StateError, match="a change can't hold another one"):
                await in_thread(nest)
            assert await tools.count() == 1


async def test_blocking_access_in_an_async_tool_is_refused() -> None:
    async with serving() as interception, called(interception, Counts()):
        with pytest.raises(StateError, match=r"await the methods of self.state"):
            Counter().state.blocking.get()


async def test_a_run_that_is_gone_is_told_without_the_secret() -> None:
    async with serving() as interception, called(interception, Counts()) as (_, rollout):
        pass
    caller.set(rollout)
    async with connected():
        with pytest.raises(StateError, match="the run can't be reached") as caught:
            await Counter().state.get()
    assert rollout.state_key not in repr(caught.value.__cause__) + str(caught.value)
