"""Sentences to write backwards: hard for small models, with a reward that tells near misses from nonsense."""

import random
from collections.abc import Iterator

from pydantic import Field

from vfx.authoring.hooks import metric, reward
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.text import similarity
from vfx.trace.record import Trace

__all__ = ["ReverseText", "ReverseTextTask"]

SYSTEM_PROMPT = "Reverse the text that you are given, character by character. Answer with the reversed text only."

SUBJECTS = (
    "the old clock",
    "a grey heron",
    "our neighbour",
    "the night train",
    "one small lamp",
    "the baker",
    "a kite",
)
VERBS = ("watched", "followed", "carried", "forgot", "painted", "repaired", "found")
OBJECTS = ("the garden gate", "a broken radio", "seven letters", "the river", "an empty boat", "the last page", "salt")
PLACES = ("at dawn", "under the bridge", "without a word", "in winter", "behind the mill", "twice a week", "by mistake")


class ReverseTextTask(Task):
    """One sentence."""

    answer: str

    @reward
    def similarity(self, trace: Trace) -> float:
        """How alike reply and reversed text are, from 0 to 1."""
        return similarity(trace.last_reply.strip(), self.answer)

    @metric
    def exact(self, trace: Trace) -> float:
        """1 when the reply is the reversed text and nothing else."""
        return float(trace.last_reply.strip() == self.answer)


class ReverseText(Taskset[ReverseTextTask]):
    """Made-up sentences, drawn with a seed."""

    size: int = Field(default=120, ge=1, le=2401)
    """How many tasks."""
    task_seed: int = 0
    """Seed for drawing the sentences."""

    def load(self) -> Iterator[ReverseTextTask]:
        """The sentences, none of them twice."""
        parts = [(s, v, o, p) for s in SUBJECTS for v in VERBS for o in OBJECTS for p in PLACES]
        for chosen in random.Random(self.task_seed).sample(parts, self.size):  # noqa: S311 - not a secret
            text = " ".join(chosen)
            yield ReverseTextTask(prompt=text, answer=text[::-1], system_prompt=SYSTEM_PROMPT)
