"""What is configured of a judge: how it is asked, by which words, on which scale."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from vfx.authoring.judge_prompt import placeholders, unknown_placeholder
from vfx.authoring.verdict import Form
from vfx.clients.asking import ModelSettings
from vfx.messages import Sampling
from vfx.settings import Settings

__all__ = [
    "Criterion",
    "JudgeModel",
    "JudgeSampling",
    "JudgeSettings",
    "ReferenceJudge",
    "RubricJudge",
    "form_of",
    "needs_answer",
    "templates_of",
]

_REFERENCE = "You compare a reply with the right answer to a question. You judge whether they agree in what they say."
_REFERENCE_PROMPT = """\
The question:
{question}

The right answer:
{answer}

The reply to judge:
{reply}

Does the reply give the right answer? Other words, more detail and another form are fine, another answer is not. A
score of {high} means that it does, {low} that it does not."""
_RUBRIC = "You judge a reply to a question by the criteria that you are given, each by itself."
_RUBRIC_PROMPT = """\
The question:
{question}

The reply to judge:
{reply}

The criteria:
{criteria}

How far does the reply meet each of them? A score of {high} means entirely, {low} not at all."""


class JudgeSampling(Sampling):
    """Sampling settings of a judge."""

    temperature: float | None = Field(default=0.0, ge=0)
    """Sampling temperature; none = the provider's own."""


class JudgeModel(ModelSettings):
    """The model that judges."""

    sampling: JudgeSampling = JudgeSampling()  # pyright: ignore[reportIncompatibleVariableOverride] - frozen
    """Sampling settings of its calls."""


class _Common(JudgeModel):
    """What every judge has."""

    name: str | None = Field(default=None, min_length=1)
    """What its score is called; None = its type."""
    weight: float | None = Field(default=None, allow_inf_nan=False)
    """Its share in the rollout's reward; None = that of the reward it replaces, or 1."""
    max_asks: int = Field(default=3, ge=1)
    """How often it is asked for one verdict, the first time included, until the answer can be read."""
    repeat: int = Field(default=1, ge=1)
    """Verdicts, of which the score is the mean; their spread is a metric when there are several."""
    instructions: str | None = None
    """The system prompt, with the placeholders of `prompt`; None = the one of its type."""
    prompt: str | None = None
    """The question, with {question}, {reply}, {answer}, {criteria}, {transcript}, {low}, {high}; None = its type's."""
    answer_field: str = "answer"
    """The task's field that holds the right answer."""
    scale: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest score. Scores stay as they are on it."""
    whole: bool = False
    """Whether scores are whole numbers."""
    structured: bool = False
    """Ask the server to hold the model to the form by `response_format`, which not every server can."""

    @field_validator("instructions", "prompt")
    @classmethod
    def _has_known_placeholders(cls, value: str | None) -> str | None:
        if value is not None and (wrong := unknown_placeholder(value)):
            raise ValueError(wrong)
        return value

    @model_validator(mode="after")
    def _ends_are_whole(self) -> Self:
        if self.whole and any(end != int(end) for end in self.scale):
            raise ValueError(f"scale: its ends must be whole numbers, too, got {self.scale[0]:g} and {self.scale[1]:g}")
        return self

    @field_validator("scale")
    @classmethod
    def _goes_up(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not all(map(math.isfinite, value)) or value[0] >= value[1]:
            raise ValueError(f"expected two numbers, the lower one first, got {value[0]:g} and {value[1]:g}")
        return value


class ReferenceJudge(_Common):
    """Does the reply match the right answer?"""

    type: Literal["reference"] = "reference"


class Criterion(Settings):
    """One thing that a rubric looks at."""

    name: str = Field(min_length=1)
    """What it is called."""
    description: str = ""
    """When a reply meets it; empty = its name says it."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its share in the judge's score, which is the weighted mean."""


class RubricJudge(_Common):
    """How far does the reply meet each of several criteria?"""

    type: Literal["rubric"] = "rubric"
    criteria: tuple[Criterion, ...]
    """What to look at; the score of each is a metric."""

    @model_validator(mode="after")
    def _has_distinct_names(self) -> Self:
        if not self.criteria:
            raise ValueError("criteria: expected at least one")
        names = [criterion.name for criterion in self.criteria]
        if twice := sorted({name for name in names if names.count(name) > 1} | ({"spread"} & set(names))):
            raise ValueError(f"criteria: no two can have the same name, and none `spread`: {', '.join(twice)}")
        return self


JudgeSettings = Annotated[ReferenceJudge | RubricJudge, Field(discriminator="type")]


def form_of(settings: ReferenceJudge | RubricJudge) -> Form:
    """What its verdicts look like."""
    names = [each.name for each in settings.criteria] if isinstance(settings, RubricJudge) else ()
    return Form(*settings.scale, names, settings.whole)


def templates_of(settings: ReferenceJudge | RubricJudge) -> tuple[str, str]:
    """Its system prompt and its question."""
    own = (_RUBRIC, _RUBRIC_PROMPT) if isinstance(settings, RubricJudge) else (_REFERENCE, _REFERENCE_PROMPT)
    instructions, prompt = settings.instructions, settings.prompt
    return (own[0] if instructions is None else instructions, own[1] if prompt is None else prompt)


def needs_answer(settings: ReferenceJudge | RubricJudge) -> bool:
    """True when it is told the right answer."""
    return "answer" in {name for template in templates_of(settings) for name in placeholders(template)}
