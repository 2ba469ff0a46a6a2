"""The demo: sums of two one-digit numbers, which a very small model gets right about half of the time."""

import random
from collections.abc import Iterator

from pydantic import Field

from vfx.authoring.hooks import metric, reward
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.text import numbers
from vfx.trace.record import Trace

__all__ = ["Arithmetic", "ArithmeticTask"]


class ArithmeticTask(Task):
    """One sum."""

    answer: int

    @reward
    def correct(self, trace: Trace) -> float:
        """1 when the reply holds the sum as a number of its own."""
        return float(self.answer in numbers(trace.last_reply))

    @metric
    def reply_chars(self, trace: Trace) -> float:
        """Length of the reply in characters."""
        return len(trace.last_reply)


class Arithmetic(Taskset[ArithmeticTask]):
    """Sums of two numbers, drawn with a seed; no sum comes twice while there are others."""

    digits: int = Field(default=1, ge=1, le=9)
    """Digits of each number."""
    size: int = Field(default=20, ge=1)
    """How many tasks."""
    task_seed: int = 0
    """Seed for drawing the numbers."""

    def load(self) -> Iterator[ArithmeticTask]:
        """The sums, in the order in which they are drawn."""
        draw = random.Random(self.task_seed)  # noqa: S311 - not a secret
        low, high = (1 if self.digits == 1 else 10 ** (self.digits - 1)), 10**self.digits - 1
        for left, right in _pairs(draw, low, high, self.size):
            yield ArithmeticTask(prompt=f"What is {left} + {right}?", answer=left + right, name=f"{left}+{right}")


def _pairs(draw: random.Random, low: int, high: int, size: int) -> Iterator[tuple[int, int]]:
    possible = (high - low + 1) ** 2
    while size > 0:
        for number in draw.sample(range(possible), min(size, possible)):
            left, right = divmod(number, high - low + 1)
            yield low + left, low + right
        size -= possible
