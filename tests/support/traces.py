"""Traces for tests of what reads them."""

from vfx.errors import RolloutError
from vfx.messages import Message, Usage
from vfx.trace.record import Agent, Call, ErrorRecord, Score, Span, TaskRef, Trace


def make_trace(
    key: str = "k",
    *,
    rollout: int = 0,
    reply: str | None = "four",
    rewards: dict[str, float | None] | None = None,
    error: RolloutError | None = None,
    usage: Usage | None = None,
) -> Trace:
    """A trace of one turn, or of none when `reply` is None."""
    trace = Trace(
        id=f"{key}-{rollout}",
        task=TaskRef(type="T", key=key, occurrence=0, data={"prompt": "2 + 2?"}),
        rollout=rollout,
        agent=Agent(model="m", sampling={}, harness={"id": "chat"}),
    )
    if reply is not None:
        nodes = trace.graph.commit([Message("user", "2 + 2?")], [Message("assistant", reply)])
        call = Call("m", {}, "http://127.0.0.1", Span(0.0, 1.0), nodes=nodes, finish_reasons=("stop",))
        call.usage = usage or Usage(input_tokens=5, output_tokens=1)
        trace.calls.append(call)
    trace.rewards = {name: Score(value) for name, value in (rewards or {}).items()}
    if error is not None:
        trace.errors.append(ErrorRecord.of(error))
    return trace
