"""A taskset for verifiers of as many one-line tasks as BENCH_TASKS says, scored by a look at the answer."""

import os

import verifiers.v1 as vf


class EchoData(vf.TaskData):
    answer: str = "7"


class EchoTask(vf.Task[EchoData]):
    @vf.reward(weight=1.0)
    async def has_answer(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)


class EchoTaskset(vf.Taskset[EchoTask, vf.TasksetConfig]):
    def load(self) -> list[EchoTask]:
        count = int(os.environ["BENCH_TASKS"])
        return [EchoTask(EchoData(prompt=f"Say 7. Task {i}."), self.config.task) for i in range(count)]


__all__ = ["EchoTaskset"]
