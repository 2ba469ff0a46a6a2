from typing import Any

import pytest
from pydantic import ValidationError

from vfx.authoring.judge_settings import ReferenceJudge, RubricJudge, form_of, needs_answer
from vfx.authoring.verdict import Form


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"prompt": "{rely}"}, "{rely} is no placeholder"),
        ({"instructions": "{x}"}, "{x} is no placeholder"),
        ({"scale": (1, 1)}, "the lower one first"),
        ({"scale": (0, float("inf"))}, "the lower one first"),
        ({"whole": True, "scale": (0, 0.5)}, "its ends must be whole numbers"),
        ({"max_asks": 0}, "greater than or equal to 1"),
        ({"weight": float("nan")}, "finite"),
    ],
)
def test_mistakes_in_settings_are_told(data: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        ReferenceJudge.model_validate(data)


@pytest.mark.parametrize("names", [[], ["a", "a"], ["spread"]])
def test_criteria_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ValidationError, match="criteria: "):
        RubricJudge.model_validate({"criteria": [{"name": name} for name in names]})


def test_a_judge_is_cold_unless_it_is_told_otherwise() -> None:
    settings = ReferenceJudge.model_validate({"sampling": {"max_tokens": 5}})
    assert (settings.sampling.temperature, settings.sampling.max_tokens) == (0.0, 5)


def test_the_form_follows_from_scale_and_criteria() -> None:
    rubric = RubricJudge.model_validate({"criteria": [{"name": "a"}, {"name": "b"}], "scale": [1, 5], "whole": True})
    assert form_of(ReferenceJudge()) == Form(0, 1, ())
    assert form_of(rubric) == Form(1, 5, ["a", "b"], is_whole=True)


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        (ReferenceJudge(), True),
        (ReferenceJudge(prompt="{reply}"), False),
        (ReferenceJudge(prompt="{{answer}}"), False),
        (ReferenceJudge(prompt="{reply}", instructions="It is {answer}."), True),
        (RubricJudge.model_validate({"criteria": [{"name": "a"}]}), False),
    ],
)
def test_a_judge_needs_the_answer_where_its_words_name_it(settings: ReferenceJudge | RubricJudge, needs: bool) -> None:
    assert needs_answer(settings) is needs
