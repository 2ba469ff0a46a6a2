"""Prints for how many milliseconds the event loop stands still while the record of a trace of 800 turns is appended."""

import tempfile
from pathlib import Path

import anyio
from stalls import longest_stall

from vfx._concurrency import prompt_threads
from vfx.messages import Completion, Message, Sampling, Usage
from vfx.runner.store import RunStore
from vfx.trace.record import Agent, Call, Span, TaskRef, Trace

TURNS = 800


def long_trace() -> Trace:
    trace = Trace(id="t", task=TaskRef("T", "k", 0, {"prompt": "q"}), rollout=0, agent=Agent("m", {}, {}))
    prompt: list[Message] = []
    for number in range(TURNS):
        prompt.append(Message("user", f"{number} " + "u" * 400))
        answer = Message("assistant", "a" * 400)
        completion = Completion((answer,), ("stop",), Usage(100, 10))
        nodes = trace.graph.commit([*prompt], completion.messages)
        call = Call("m", Sampling().model_dump(exclude_none=True), "http://127.0.0.1", Span(1.0, 2.0), nodes)
        call.finish_reasons, call.usage = completion.finish_reasons, completion.usage
        trace.calls.append(call)
        prompt.append(answer)
    return trace


async def main() -> None:
    trace = long_trace()
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "run")
        # As a run has it.
        with prompt_threads():
            print(await longest_stall(lambda: store.append(trace)))
        store.close()


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
