import pytest
from pydantic import ValidationError

from vfx.messages import Message
from vfx.tasksets.guess_number import GuessNumber, GuessNumberTask, Host

TASK = GuessNumberTask(prompt="Guess", low=1, high=100, secret=42, tries=3)


def respond(*replies: str) -> str | None:
    return Host().respond([Message("assistant", replies[-1])], TASK, len(replies) - 1)


def test_it_says_where_the_number_lies_until_it_is_found() -> None:
    assert respond("Let me try 50") == "My number is lower than 50. You have 2 guesses left."
    assert respond("50", "not 50 but 41") == "My number is higher than 41. You have 1 guess left."
    assert respond("50", "no idea") == "Answer with a whole number from 1 to 100. You have 1 guess left."
    assert respond("50", "42!") is None


def test_it_ends_when_the_guesses_are_used_up() -> None:
    assert respond("1", "2", "3") is None


def test_games_are_the_same_for_the_same_seed_and_halving_has_time() -> None:
    games = list(GuessNumber(size=5).load())
    assert [game.secret for game in games] == [game.secret for game in GuessNumber(size=5).load()]
    assert {game.tries for game in games} == {9}
    assert all(1 <= game.secret <= 100 for game in games)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValidationError, match="low must be less than high"):
        GuessNumber(low=5, high=5)
