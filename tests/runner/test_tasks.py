import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import vfx
from vfx.errors import ConfigError
from vfx.runner.tasks import load_tasks


class Question(vfx.Task):
    answer: str


ONE = Question(prompt="?", answer="!")


class Work(vfx.Taskset[Any]):
    def load(self) -> Any:
        return [ONE]


class WithoutLoad(vfx.Taskset[Any]):
    pass


class Coroutine(vfx.Taskset[Any]):
    async def load(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [ONE]


class AsyncGenerator(vfx.Taskset[Any]):
    async def load(self) -> AsyncIterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        yield ONE


class Nothing(vfx.Taskset[Any]):
    def load(self) -> Any:
        return None


class Alone(vfx.Taskset[Any]):
    def load(self) -> Any:
        return ONE


class Texts(vfx.Taskset[Any]):
    def load(self) -> Any:
        return [ONE, "two"]


class Incomplete(vfx.Taskset[Any]):
    def load(self) -> Iterator[Any]:
        yield ONE
        yield Question(prompt="?")  # pyright: ignore[reportCallIssue]


class Raises(vfx.Taskset[Any]):
    def load(self) -> Any:
        return open("/nowhere/tasks.csv")


class OddKey(Question):
    @property
    def key(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """No text."""
        return 7


class Exits(vfx.Taskset[Any]):
    def load(self) -> Any:
        sys.exit(4)


class Keys(vfx.Taskset[Any]):
    def load(self) -> Any:
        return [OddKey(prompt="?", answer="!")]


class Unstorable(vfx.Task):
    thing: Any


class Things(vfx.Taskset[Any]):
    def load(self) -> Any:
        return [Unstorable(prompt="?", thing=object())]


def test_tasks_come_one_by_one() -> None:
    assert next(load_tasks(Incomplete())) is ONE
    assert list(load_tasks(Work())) == [ONE]


@pytest.mark.parametrize(
    ("taskset", "said"),
    [
        (WithoutLoad, "WithoutLoad has no load method: write one that gives its tasks"),
        (Coroutine, r"Coroutine.load\(\) must be a plain method: write def in place of async def"),
        (AsyncGenerator, r"AsyncGenerator.load\(\) must be a plain method"),
        (Nothing, r"must give tasks, as a list or with yield, got None; does it return them\?"),
        (Alone, "must give tasks, as a list or with yield, got Question; yield it, or put it in a list"),
        (Exits, r"its tasks can't be loaded: load\(\) calls sys.exit\(4\)"),
        (Keys, "OddKey.key must be text, got int for task 1"),
        (Things, "its tasks can't be loaded.*Unable to serialize unknown type"),
        (Texts, r"load\(\) must give vfx.Task instances, got str as task 2"),
        (Incomplete, r"after 1 of them: Question with answer: Field required \(line \d+ of test_tasks.py\)"),
        (
            Raises,
            r"FileNotFoundError: .* No such file or directory: '/nowhere/tasks.csv' \(line \d+ of test_tasks.py\)",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_authors_terms(taskset: type[vfx.Taskset[Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(load_tasks(taskset(id="./mine.py")))
