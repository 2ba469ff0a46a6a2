"""What a turn costs as its conversation grows: read, matched, imposed on and committed, without any network.

Beside it the same with an empty memory, which is what every turn would cost if nothing were remembered of the last.
"""

import json
import time
from collections.abc import Callable

from vfx.dialects.base import Dialect
from vfx.dialects.routes import ANTHROPIC, CHAT
from vfx.interception.prompts import PromptMemory
from vfx.interception.relay import read_prompt
from vfx.interception.retries import Mark, digest_of
from vfx.interception.session import Session, Turn
from vfx.messages import Completion, Message, Sampling, Usage
from vfx.trace.record import Agent, TaskRef, Trace

TURNS = (1, 50, 200, 800)
WORDS = "The quick brown fox jumps over the lazy dog. " * 12
TOOLS = [{"type": "function", "function": {"name": f"t{n}", "description": WORDS, "parameters": {}}} for n in range(8)]


def new_session() -> Session:
    trace = Trace(id="t", task=TaskRef("T", "k", 0, {}), rollout=0, agent=Agent("m", {}, {}))
    return Session(trace, model="m", sampling=Sampling(temperature=0.0), endpoint="bench")


def chat_turn(number: int) -> list[dict[str, object]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "t1", "arguments": '{"x": 1}'}}
    return [
        {"role": "assistant", "content": f"{number}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {WORDS}"},
    ]


def claude_turn(number: int) -> list[dict[str, object]]:
    use = {"type": "tool_use", "id": f"c{number}", "name": "t1", "input": {"x": 1}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number} {WORDS}"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def measure(dialect: Dialect, turn: Callable[[int], list[dict[str, object]]], *, remembers: bool) -> dict[int, float]:
    """Milliseconds of the turns of `TURNS` in one conversation, the best of five."""
    session = new_session()
    messages: list[dict[str, object]] = [{"role": "user", "content": WORDS}]
    taken: dict[int, float] = {}
    for number in range(1, max(TURNS) + 1):
        raw = json.dumps({"model": "m", "messages": messages, "tools": TOOLS, "temperature": 1}).encode()
        repeats = 5 if number in TURNS else 1
        for _ in range(repeats):
            if not remembers:
                session.prompts = PromptMemory()
                session.trace.graph._trails.clear()  # noqa: SLF001
            start = time.perf_counter()
            document, prompt = read_prompt(dialect, raw, session)
            session.retries.find(Mark(), digest_of(dialect.route, raw), start)
            document.replaced(dialect.impose(document.body, "m", session.sampling))
            admitted = session.admit()
            assert isinstance(admitted, Turn)
            admitted.prompt, admitted.tools = prompt, document.body["tools"]
            session.commit(admitted, Completion((Message("assistant", f"{number}"),), ("stop",), Usage()))
            took = (time.perf_counter() - start) * 1000
            taken[number] = min(took, taken.get(number, took))
        messages += turn(number)
    return {number: taken[number] for number in TURNS}


def main() -> None:
    print(f"{'dialect':<12}{'memory':<10}" + "".join(f"{f'turn {number}':>12}" for number in TURNS) + "   (ms)")
    for dialect, turn in ((CHAT, chat_turn), (ANTHROPIC, claude_turn)):
        for remembers in (False, True):
            costs = measure(dialect, turn, remembers=remembers)
            row = "".join(f"{cost:>12.2f}" for cost in costs.values())
            print(f"{dialect.path:<17.16}{'kept' if remembers else 'empty':<5}{row}")
    raw = json.dumps({"messages": [message for n in range(800) for message in chat_turn(n)]}).encode()
    start = time.perf_counter()
    json.loads(raw)
    print(f"json.loads of the last: {(time.perf_counter() - start) * 1000:.2f} ms for {len(raw) / 1024:.0f} kB")


if __name__ == "__main__":
    main()
