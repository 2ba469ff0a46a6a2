"""Questions about a made-up country, to be answered with tools: all rollouts share its archive, each has a notebook."""

import random
import re
from collections.abc import Iterator
from typing import ClassVar

from pydantic import BaseModel, Field, PrivateAttr, model_validator

from vfx.authoring.hooks import metric, reward
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.text import numbers
from vfx.authoring.toolset import Toolset, Toolsets, tool
from vfx.trace.record import Trace

__all__ = ["Archive", "Notebook", "Search", "SearchTask", "Town", "town"]

SYSTEM_PROMPT = (
    "You answer questions about towns that nobody but the archive knows. Search the archive and read what you find. "
    "Note what you need. Answer with the number alone."
)

STARTS = ("Al", "Bor", "Cas", "Den", "Er", "Fal", "Gor", "Hel", "Is", "Jun", "Kar", "Lor", "Mar", "Nor", "Os", "Per")
MIDDLES = ("a", "be", "di", "ga", "ki", "lo", "mi", "na", "o", "pe", "ra", "si", "ta", "u", "vi", "ze")
ENDS = ("bury", "dale", "field", "ford", "ham", "holm", "mouth", "ness", "port", "stead", "ton", "vale", "wick", "wood")
CRAFTS = ("glass", "rope", "clocks", "paper", "bells", "boats", "dyes", "kites", "salt", "tiles")
RIVERS = ("Ann", "Brune", "Cale", "Dove", "Esk", "Fenn", "Gild", "Hurn")


class Town(BaseModel):
    """One document of the archive."""

    name: str
    founded: int
    people: int
    craft: str
    river: str

    @property
    def text(self) -> str:
        """What the archive says about it."""
        return (
            f"{self.name} lies on the river {self.river}. It was founded in the year {self.founded} and is known for "
            f"its {self.craft}. At the last count, {self.people} people lived in {self.name}."
        )


def town(number: int) -> Town:
    """Document `number` of the archive, the same whoever asks."""
    draw = random.Random(number)  # noqa: S311 - not a secret
    parts = len(STARTS) * len(MIDDLES) * len(ENDS)
    start, rest = divmod(number % parts, len(MIDDLES) * len(ENDS))
    middle, end = divmod(rest, len(ENDS))
    again = number // parts
    return Town(
        name=f"{STARTS[start]}{MIDDLES[middle]}{ENDS[end]}" + (f" {again + 1}" if again else ""),
        founded=draw.randrange(900, 1900),
        people=draw.randrange(200, 90_000),
        craft=draw.choice(CRAFTS),
        river=draw.choice(RIVERS),
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class Archive(Toolset):
    """Documents and an index of their words, made once when the server starts."""

    documents: int = Field(default=500, ge=1, le=1_000_000)
    """How many documents there are."""

    _towns: list[Town] = PrivateAttr(default_factory=list[Town])
    _index: dict[str, list[int]] = PrivateAttr(default_factory=dict[str, list[int]])

    async def start(self) -> None:
        """Write the documents, and index them."""
        for number in range(self.documents):
            self._towns.append(town(number))
            for word in _words(self._towns[-1].text):
                self._index.setdefault(word, []).append(number)

    @tool
    def search(self, query: str, limit: int = 5) -> list[dict[str, str | int]]:
        """Find documents by their words; those that share the rarest words with the query come first.

        Args:
            query: Words, such as the name of a town.
            limit: How many to give at most.
        """
        scores: dict[int, float] = {}
        for word in _words(query):
            found = self._index.get(word, ())
            for number in found:
                scores[number] = scores.get(number, 0.0) + 1 / len(found)
        best = sorted(scores, key=lambda number: (-scores[number], number))[: max(0, limit)]
        return [{"document": number, "title": self._towns[number].name} for number in best]

    @tool
    def read(self, document: int) -> str:
        """Read one document.

        Args:
            document: Its number, as the search gave it.
        """
        if not 0 <= document < len(self._towns):
            raise LookupError(f"there is no document {document}; they are numbered from 0 to {len(self._towns) - 1}")
        return self._towns[document].text


class Notebook(Toolset):
    """Notes of one rollout, which no other sees."""

    _notes: list[str] = PrivateAttr(default_factory=list[str])

    @tool
    async def note(self, text: str) -> str:
        """Write something down."""
        self._notes.append(text)
        return f"{len(self._notes)} notes"

    @tool
    async def notes(self) -> list[str]:
        """What was written down so far."""
        return self._notes


class SearchTask(Task):
    """One question."""

    toolsets: ClassVar[Toolsets] = {"notebook": Notebook}

    answer: int

    @reward
    def correct(self, trace: Trace) -> float:
        """1 when the reply holds the right number."""
        return float(self.answer in numbers(trace.last_reply))

    @metric
    def tool_results(self, trace: Trace) -> float:
        """How many results of tools the model has seen."""
        return len(trace.tool_messages)


class Search(Taskset[SearchTask]):
    """Questions that take one search and one reading each."""

    toolsets: ClassVar[Toolsets] = {"archive": Archive}

    questions: int = Field(default=50, ge=1)
    """How many questions."""

    @model_validator(mode="after")
    def _enough_documents(self) -> "Search":
        if self.questions > self._documents:
            raise ValueError(f"there are {self._documents} documents, which is less than questions {self.questions}")
        return self

    @property
    def _documents(self) -> int:
        archive = self.tools.servers["archive"]
        return archive.documents if isinstance(archive, Archive) else 0

    def load(self) -> Iterator[SearchTask]:
        """Questions about documents that are far apart."""
        for number in range(self.questions):
            asked = town(number * self._documents // self.questions)
            yield SearchTask(
                prompt=f"In which year was {asked.name} founded?",
                answer=asked.founded,
                system_prompt=SYSTEM_PROMPT,
                id=asked.name,
            )
