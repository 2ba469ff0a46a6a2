"""The judges of a run: which models they ask, found before anything starts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vfx.authoring.hooks import Hook
from vfx.authoring.judge import Judge, JudgeReward
from vfx.authoring.judge_settings import JudgeModel
from vfx.authoring.task import Task
from vfx.clients.asking import Asker
from vfx.errors import Mistake
from vfx.runner.side_models import SideModels
from vfx.trace.record import Trace

__all__ = ["Judging"]


class Judging:
    """Knows what each judge of the tasks asks.

    Args:
        side_models: Where their models are made known.
        configured: What judges ask that name no model; None = what each task says.
    """

    def __init__(self, side_models: SideModels, configured: JudgeModel | None) -> None:
        self._side_models = side_models
        self._configured = configured
        self._askers: dict[tuple[type[Task], int | None], Asker] = {}
        self._is_admitted = False

    def admit(self, tasks: Iterable[Task]) -> Sequence[Mistake]:
        """Make the judges of these tasks known; only those are asked. Before anything is started.

        Returns:
            What keeps their models from being reached.
        """
        self._is_admitted = True
        for task in tasks:
            for hook in (*task.hooks("metric"), *task.hooks("reward")):
                if "judge" in hook.parameters:
                    self._admit(type(task), hook)
        return list(self._side_models.mistakes())

    def _admit(self, owner: type[Task], hook: Hook) -> None:
        judge = hook.function if isinstance(hook.function, JudgeReward) else None
        key = (owner, None if judge is None else id(judge.settings))
        if key not in self._askers:
            settings, where = self._default(owner)
            if judge is not None:
                settings, where = _effective(judge.settings, judge.where, settings, where)
            self._askers[key] = self._side_models.add(settings, where)

    def _default(self, owner: type[Task]) -> tuple[JudgeModel, str]:
        if self._configured is not None:
            return self._configured, "taskset.task.judge_model"
        return owner.judge_model, f"{owner.__name__}.judge_model"

    def available(self, task: Task, trace: Trace) -> Mapping[str, Any]:
        """What hooks of a rollout may ask for besides: a judge; nothing where no judges were admitted."""
        if not self._is_admitted:
            return {}

        def find(settings: JudgeModel | None) -> Asker:
            return self._askers[type(task), None if settings is None else id(settings)]

        return {"judge": Judge(trace, task, find)}


def _effective(own: JudgeModel, where: str, default: JudgeModel, default_where: str) -> tuple[JudgeModel, str]:
    """A judge's model with what it leaves out taken from the default, and where its client is configured."""
    # By value: a saved configuration sets everything.
    sampling = default.sampling if own.sampling == JudgeModel().sampling else own.sampling
    if own.client is not None:
        return JudgeModel(model=own.model, client=own.client, sampling=sampling), where
    return JudgeModel(model=own.model or default.model, client=default.client, sampling=sampling), default_where
