"""A game in turns: find a number, told each time whether it is higher or lower. Halving finds it in time."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from vfx.authoring.hooks import metric, reward
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.text import numbers
from vfx.authoring.user import User
from vfx.messages import Message
from vfx.trace.record import Trace

__all__ = ["GuessNumber", "GuessNumberTask", "Host"]


class Host(User):
    """Says whether the number is higher or lower, until it is found or the guesses are used up."""

    max_turns: int | None = Field(default=None, ge=1)
    """How often it responds; None = as often as the task allows guesses."""

    def respond(self, messages: Sequence[Message], task: "GuessNumberTask", turn: int) -> str | None:
        """Higher or lower; None at the end."""
        guess = _guess(messages[-1].text)
        left = task.tries - turn - 1
        if guess == task.secret or not left:
            return None
        if guess is None:
            hint = f"Answer with a whole number from {task.low} to {task.high}."
        else:
            hint = f"My number is {'higher' if guess < task.secret else 'lower'} than {guess:g}."
        return f"{hint} You have {left} {'guess' if left == 1 else 'guesses'} left."


class GuessNumberTask(Task):
    """One number to find."""

    user: ClassVar[type[User] | None] = Host

    low: int
    high: int
    secret: int
    tries: int
    """Guesses that the model has."""

    @reward
    def found(self, trace: Trace) -> float:
        """1 when the last guess was right."""
        return float(_guess(trace.last_reply) == self.secret)

    @metric
    def guesses(self, trace: Trace) -> float:
        """How many answers the model gave."""
        return len(trace.assistant_messages)


class GuessNumber(Taskset[GuessNumberTask]):
    """Numbers to find, drawn with a seed."""

    low: int = 1
    """The smallest number."""
    high: int = 100
    """The largest number."""
    tries: int | None = Field(default=None, ge=1)
    """Guesses that the model has; None = as many as halving needs, and two more."""
    size: int = Field(default=20, ge=1)
    """How many tasks."""
    task_seed: int = 0
    """Seed for drawing the numbers."""

    @model_validator(mode="after")
    def _has_numbers(self) -> "GuessNumber":
        if self.low >= self.high:
            raise ValueError(f"low must be less than high, got {self.low} and {self.high}")
        return self

    def load(self) -> Iterator[GuessNumberTask]:
        """The games, in the order in which their numbers are drawn."""
        draw = random.Random(self.task_seed)  # noqa: S311 - not a secret
        tries = self.tries or math.ceil(math.log2(self.high - self.low + 1)) + 2
        opening = (
            f"I am thinking of a whole number from {self.low} to {self.high}. Guess it: answer with a number each "
            f"time, and I say whether mine is higher or lower. You have {tries} guesses."
        )
        for _ in range(self.size):
            secret = draw.randint(self.low, self.high)
            fields: dict[str, Any] = {"low": self.low, "high": self.high, "secret": secret, "tries": tries}
            yield GuessNumberTask(prompt=opening, name=f"{self.low}-{self.high}:{secret}", **fields)


def _guess(text: str) -> float | None:
    """The last number in a reply: what comes before it is thinking aloud."""
    found = numbers(text)
    return found[-1] if found else None
