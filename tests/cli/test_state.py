"""What a rollout's tools, stops and rewards share, under `vfx eval` and `vfx replay`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Done, read_lines, vfx
from tests.support.provider import Provider, Reply, Request, completion, scripted_provider

pytestmark = pytest.mark.anyio

ENVIRONMENT = """
from typing import ClassVar
import vfx

class Cart(vfx.State):
    items: list[str] = []
    budget: int = 3
    paid: bool = False

class Shop(vfx.Toolset):
    state_type = Cart

    @vfx.tool
    async def add(self, item: str) -> str:
        '''Put an item into the cart.'''
        async with self.state.change() as cart:
            cart.items.append(item)
        return f"{len(cart.items)} items"

    @vfx.tool
    def pay(self) -> str:
        '''Pay for the cart.'''
        with self.state.blocking.change() as cart:
            if len(cart.items) > cart.budget:
                raise ValueError("too expensive")
            cart.paid = True
        return (self.state.blocking.task())["shop"]

class Errand(vfx.Task):
    toolsets: ClassVar = {"shop": Shop}
    state_type: ClassVar = Cart
    shop: str = "corner shop"

    def setup(self, state):
        state.items.append("bag")

    def finalize(self, state, trace):
        assert trace.state is state
        trace.info["paid"] = state.paid

    @vfx.stop
    def is_full(self, state):
        return len(state.items) > 3

    @vfx.reward
    def items(self, state):
        return len(state.items)

    @vfx.metric(isolate=True)
    def paid(self, state):
        state.items.clear()
        return state.paid

class Errands(vfx.Taskset[Errand]):
    size: int = 1

    def load(self):
        for number in range(self.size):
            yield Errand(prompt=f"Buy {number}", id=f"errand-{number}")
"""


def call(name: str, **arguments: Any) -> Reply:
    asked = {"id": "call", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return completion(None, tool_calls=(asked,), finish_reason="tool_calls")


def shopper(request: Request) -> Reply:
    """Buys what is asked for, pays, and says goodbye."""
    messages = request.json()["messages"]
    wanted = messages[0]["content"].removeprefix("Buy ")
    turn = sum(message["role"] == "assistant" for message in messages)
    return [call("add", item=wanted), call("pay"), completion("Bye")][turn]


async def run(tmp_path: Path, provider: Provider, *argv: str, text: str = ENVIRONMENT) -> Done:
    (tmp_path / "errands.py").write_text(text)
    model = ("-m", "test-model", "--client.base-url", provider.base_url, "--client.api-key-var", "none")
    return await vfx("eval", "./errands.py", *model, "--name", "old", "--display", "none", *argv, cwd=tmp_path)


def records(tmp_path: Path, name: str = "old") -> list[dict[str, Any]]:
    [folder] = tmp_path.glob(f"outputs/*/{name}")
    return sorted(read_lines(folder / "traces.jsonl"), key=lambda record: record["task"]["id"])


async def test_tools_stops_and_hooks_of_each_rollout_share_its_state(tmp_path: Path) -> None:
    async with scripted_provider(default=shopper) as provider:
        done = await run(tmp_path, provider, "--taskset.size", "6")
    assert done.code == 0, done.stderr
    for number, record in enumerate(records(tmp_path)):
        assert record["state"] == {"items": ["bag", str(number)], "budget": 3, "paid": True}
        assert (record["reward"], record["metrics"], record["info"]) == (2, {"paid": 1}, {"paid": True})
        told = [node["message"]["content"] for node in record["nodes"] if node["message"]["role"] == "tool"]
        assert told == ["2 items", "corner shop"]


async def test_a_shared_server_keeps_the_states_of_its_rollouts_apart(tmp_path: Path) -> None:
    text = ENVIRONMENT.replace('    toolsets: ClassVar = {"shop": Shop}\n', "").replace(
        "    size: int = 1\n", '    toolsets: ClassVar = {"shop": Shop}\n    size: int = 32\n'
    )
    async with scripted_provider(default=shopper) as provider:
        done = await run(tmp_path, provider, "-c", "32", text=text)
    assert done.code == 0, done.stderr
    bought = {record["task"]["id"]: record["state"]["items"] for record in records(tmp_path)}
    assert bought == {f"errand-{number}": ["bag", str(number)] for number in range(32)}


async def test_a_stop_sees_what_a_tool_has_written(tmp_path: Path) -> None:
    async with scripted_provider(default=call("add", item="x")) as provider:
        done = await run(tmp_path, provider, "--max-turns", "9")
    assert done.code == 0, done.stderr
    [record] = records(tmp_path)
    assert (record["stop_condition"], record["state"]["items"]) == ("is_full", ["bag", "x", "x", "x"])


async def test_a_replay_gives_hooks_the_typed_state_again(tmp_path: Path) -> None:
    async with scripted_provider(default=shopper) as provider:
        await run(tmp_path, provider)
    (tmp_path / "errands.py").write_text(
        ENVIRONMENT.replace("return len(state.items)", "return state.budget + len(trace.state.items)").replace(
            "def items(self, state)", "def items(self, state, trace)"
        )
    )
    [old] = tmp_path.glob("outputs/*/old")
    done = await vfx("replay", old.relative_to(tmp_path), "--name", "new", cwd=tmp_path)
    assert done.code == 0, done.stderr
    [record] = records(tmp_path, "new")
    assert (record["reward"], record["metrics"]["paid"]) == (5, 1)
    assert record["state"] == records(tmp_path)[0]["state"]


async def test_a_replay_says_when_the_recorded_state_no_longer_fits(tmp_path: Path) -> None:
    async with scripted_provider(default=shopper) as provider:
        await run(tmp_path, provider)
    text = ENVIRONMENT.replace("budget: int = 3", "budget: str = ''")
    text += "\n    async def nothing(self): ...\n"
    (tmp_path / "errands.py").write_text(
        text.replace("class Errands", EXTRA + "class Errands")
        .replace("Taskset[Errand]", "Taskset[More]")
        .replace("yield Errand", "yield More")
    )
    [old] = tmp_path.glob("outputs/*/old")
    await vfx("replay", old.relative_to(tmp_path), "--name", "new", cwd=tmp_path)
    [record] = records(tmp_path, "new")
    [error] = record["errors"]
    assert (error["kind"], error["message"]) == (
        "scoring",
        "the recorded state no longer fits Cart: budget: expected text, got 3",
    )
    assert record["rewards"]["items"]["score"] is None
    assert record["rewards"]["said"]["score"] == 1
    assert record["state"]["budget"] == 3


EXTRA = """
class More(Errand):
    @vfx.reward
    def said(self, trace):
        return float(trace.last_reply == "Bye")

"""


async def test_group_rewards_of_a_resumed_run_see_typed_states(tmp_path: Path) -> None:
    text = ENVIRONMENT.replace(
        "class Errands",
        """    @vfx.group_reward
    def most(self, traces):
        most = max(len(trace.state.items) for trace in traces)
        return [float(len(trace.state.items) == most) for trace in traces]

class Errands""",
    )
    async with scripted_provider(default=shopper) as provider:
        done = await run(tmp_path, provider, "-r", "2", text=text)
        assert done.code == 0, done.stderr
        [old] = tmp_path.glob("outputs/*/old")
        lines = (old / "traces.jsonl").read_bytes().splitlines(keepends=True)
        (old / "traces.jsonl").write_bytes(lines[0])
        done = await vfx("eval", "--resume", old.relative_to(tmp_path), "--display", "none", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert [record["rewards"]["most"]["score"] for record in records(tmp_path)] == [1, 1]


async def test_a_configured_reward_that_asks_for_a_state_that_is_not_there_is_refused_before_the_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "checks.py").write_text("def counted(state):\n    return state.count\n")
    (tmp_path / "config.toml").write_text('[taskset.task.rewards.counted]\nfn = "checks.py:counted"\n')
    done = await vfx("eval", "arithmetic", "@", "config.toml", "--client.type", "scripted", cwd=tmp_path)
    assert done.code == 2, done.stdout
    assert "counted asks for state, and " in done.stderr
    assert "has no state_type" in done.stderr
