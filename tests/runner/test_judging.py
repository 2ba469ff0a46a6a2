from typing import Any

import pytest

from tests.support.traces import make_trace
from vfx.authoring.hooks import reward
from vfx.authoring.judge import Judge
from vfx.authoring.judge_settings import JudgeModel, JudgeSampling, ReferenceJudge
from vfx.authoring.task import Task
from vfx.clients.base import HttpSettings, ScriptedSettings, create_client
from vfx.runner.judging import Judging
from vfx.runner.scoring import mark_unscored
from vfx.runner.side_models import SideModels

pytestmark = pytest.mark.anyio

VERDICT = '{"score": 1}'


class Judged(Task):
    answer: str = "4"
    judges = (ReferenceJudge(), ReferenceJudge(name="other", model="own"))


class Asking(Task):
    judge_model = JudgeModel(model="of the task")

    @reward
    async def asked(self, judge: Judge) -> float:
        return len(await judge.ask("Hi."))


def judging(configured: JudgeModel | None = None) -> tuple[Judging, SideModels]:
    settings = ScriptedSettings(replies=(VERDICT,))
    models = SideModels(settings, create_client(settings), "evaluated")
    return Judging(models, configured), models


async def models_asked(judges: Judging, task: Task) -> dict[str, tuple[str, Any]]:
    """What each judge of a task asks: the model and its temperature."""
    assert judges.admit([task]) == []
    asked: dict[str, tuple[str, Any]] = {}
    for hook in task.hooks("reward"):
        trace = make_trace()
        judge: Judge = judges.available(task, trace)["judge"].named(hook.name)
        await (hook.function(judge) if not hook.is_method else hook.function(task, judge))
        asked[hook.name] = (trace.side_calls[0].model, trace.side_calls[0].name)
    return asked


async def test_judges_ask_the_evaluated_model_or_their_own() -> None:
    asked = await models_asked(judging()[0], Judged())
    assert asked == {"reference": ("evaluated", "reference"), "other": ("own", "other")}


async def test_what_is_configured_for_all_holds_where_a_judge_names_nothing() -> None:
    configured = JudgeModel(model="for all")
    asked = await models_asked(judging(configured)[0], Judged())
    assert {name: model for name, (model, _) in asked.items()} == {"reference": "for all", "other": "own"}


async def test_a_task_s_own_model_yields_to_the_configured_one() -> None:
    assert (await models_asked(judging()[0], Asking()))["asked"] == ("of the task", "asked")
    assert (await models_asked(judging(JudgeModel(model="for all"))[0], Asking()))["asked"] == ("for all", "asked")


async def test_a_client_for_all_is_shared_and_its_mistakes_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    client = HttpSettings(api_key_var="JUDGE_KEY")
    judges, models = judging(JudgeModel(model="m", client=client, sampling=JudgeSampling(temperature=1)))
    (mistake,) = judges.admit([Judged(), Judged(answer="5"), Asking()])
    assert mistake.where == "taskset.task.judge_model.client (JUDGE_KEY)"
    assert len(models.clients) == 1


def test_without_judges_nothing_is_reached() -> None:
    judges, models = judging(JudgeModel(model="m", client=HttpSettings(api_key_var="NO_SUCH_KEY")))
    assert judges.admit([Task(prompt="?")]) == []
    assert models.clients == []


def test_judges_that_were_not_admitted_are_not_asked() -> None:
    task, trace = Judged(), make_trace()
    assert judging()[0].available(task, trace) == {}
    mark_unscored(task, trace)
    assert [score.score for score in trace.rewards.values()] == [None, None]
