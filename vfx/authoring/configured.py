"""What a user configures for every task of a run: rewards, metrics and stops from outside the code, and timeouts."""

import difflib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

from pydantic import Field, model_validator

from vfx.authoring.hooks import HOOK_KINDS, Hook, HookKind, HookTable, outside_hook
from vfx.authoring.judge import JudgeReward, judge_hook
from vfx.authoring.judge_settings import JudgeModel, JudgeSettings
from vfx.authoring.loading import load_file, load_module
from vfx.authoring.task import Task, TaskResources, TaskTimeouts, answer_mistake, task_hooks
from vfx.authoring.tool_settings import ToolSettings
from vfx.errors import ConfigError, Mistake
from vfx.settings import Settings

__all__ = ["FunctionSettings", "RewardSettings", "TaskSettings", "configure_tasks"]


class RewardSettings(Settings):
    """A reward by its name: one from outside the code, or another weight for one of the tasks' own."""

    fn: str | None = None
    """The function, as `path.py:name` or `module:name`; None = the task's own reward of this name."""
    weight: float | None = Field(default=None, allow_inf_nan=False)
    """Its share in the rollout's reward; None = as it was, or 1 for a new one."""


class FunctionSettings(Settings):
    """A metric or stop condition by its name."""

    fn: str
    """The function, as `path.py:name` or `module:name`."""


class TaskSettings(Settings):
    """What every task of the run gets."""

    rewards: dict[str, RewardSettings] = Field(default_factory=dict)
    """Rewards to add, to replace or to weigh anew, by name."""
    metrics: dict[str, FunctionSettings] = Field(default_factory=dict)
    """Metrics to add or to replace, by name."""
    stops: dict[str, FunctionSettings] = Field(default_factory=dict)
    """Stop conditions to add or to replace, by name."""
    judges: tuple[JudgeSettings, ...] = ()
    """Models that score the reply, each as a reward of its own; one replaces the tasks' own reward of its name."""
    judge_model: JudgeModel | None = None
    """What judges ask that name no model, and hooks that ask for `judge`; None = what each task says."""
    timeout: TaskTimeouts = TaskTimeouts()
    """Bounds on the stages of every task, in place of the tasks' own and of --timeout."""
    resources: TaskResources = TaskResources()
    """Bounds on what every task's programs use, in place of the tasks' own and of --harness.runtime."""
    tools: ToolSettings = ToolSettings()
    """Tool servers that each rollout has for itself, by name."""

    @model_validator(mode="before")
    @classmethod
    def _with_tools(cls, data: Any) -> Any:
        # A field that a tool server or a user requires is then missed by its own name.
        if not isinstance(data, dict):
            return data
        declared = {name: dict[str, Any]() for name in ("tools", "user") if name in cls.model_fields}
        return {**declared, **cast("dict[str, Any]", data)}


def configure_tasks(tasks: Iterable[Task], settings: TaskSettings) -> None:
    """Give the tasks the hooks that were configured.

    Raises:
        ConfigError: With every function that can't be loaded, and every name that no task has.
    """
    if not (settings.rewards or settings.metrics or settings.stops or settings.judges):
        return
    tasks = list(tasks)
    mistakes: list[Mistake] = []
    outside = [hook for place, entry in _functions(settings) for hook in _load(place, entry, mistakes)]
    classes = list(dict.fromkeys(type(task) for task in tasks))
    judges = [judge_hook(judge, f"taskset.task.judges[{index}]") for index, judge in enumerate(settings.judges)]
    weights = {name: entry.weight for name, entry in settings.rewards.items() if entry.fn is None}
    mistakes += _unknown_names(classes, weights, {hook.name for hook in judges})
    mistakes += _judge_mistakes(classes, judges, settings.rewards)
    mistakes += _stateless(classes, outside)
    if mistakes:
        raise ConfigError(*mistakes)
    outside += judges
    tables = {owner: _merged(task_hooks(owner), outside, settings.rewards) for owner in classes}
    for task in tasks:
        task.use_hooks(tables[type(task)])


def _functions(settings: TaskSettings) -> Iterable[tuple[tuple[HookKind, str], str]]:
    for name, entry in settings.rewards.items():
        if entry.fn is not None:
            yield ("reward", name), entry.fn
    for name, entry in settings.metrics.items():
        yield ("metric", name), entry.fn
    for name, entry in settings.stops.items():
        yield ("stop", name), entry.fn


def _load(place: tuple[HookKind, str], reference: str, mistakes: list[Mistake]) -> Iterable[Hook]:
    kind, name = place
    where = f"taskset.task.{kind}s.{name}.fn"
    try:
        return [outside_hook(name, kind, _function(reference, where), None)]
    except TypeError as error:
        mistakes.append(Mistake(str(error), where))
    except ConfigError as error:
        mistakes += error.mistakes
    return []


def _function(reference: str, where: str) -> Any:
    location, _, name = reference.rpartition(":")
    if not location:
        raise ConfigError(Mistake(f"expected path.py:name or module:name, found {reference!r}", where))
    is_file = location.endswith(".py") or "/" in location
    module = load_file(location, where) if is_file else load_module(location, where)
    function: Any = getattr(module, name, None)
    if callable(function):
        return function
    own = (key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
    near = difflib.get_close_matches(name, own, n=1)
    hint = f"did you mean {near[0]}?" if near else ""
    raise ConfigError(Mistake(f"{location!r} has no function {name!r}", where, hint))


def _judge_mistakes(
    classes: Iterable[type[Task]], judges: Iterable[Hook], rewards: Mapping[str, RewardSettings]
) -> Iterable[Mistake]:
    seen: dict[str, str] = {name: f"taskset.task.rewards.{name}" for name, entry in rewards.items() if entry.fn}
    for hook in judges:
        where = hook.function.where if isinstance(hook.function, JudgeReward) else ""
        if hook.name in seen:
            yield Mistake(f"{seen[hook.name]} is named {hook.name!r} too", f"{where}.name", "give it another name")
        seen.setdefault(hook.name, where)
        for owner in classes:
            if what := answer_mistake(owner, hook):
                yield Mistake(what, f"{where}.answer_field", "name the field that holds the right answer")


def _unknown_names(
    classes: Iterable[type[Task]], weights: Mapping[str, float | None], judges: AbstractSet[str]
) -> list[Mistake]:
    known = {hook.name for owner in classes for kind in ("reward", "group_reward") for hook in task_hooks(owner)[kind]}
    known |= judges
    mistakes: list[Mistake] = []
    for name, weight in weights.items():
        where = f"taskset.task.rewards.{name}"
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"
            mistakes.append(Mistake(f"no task has a reward {name!r}; a new one needs fn", where, hint))
        elif weight is None:
            mistakes.append(Mistake("says nothing", where, "give a weight, or fn to replace it"))
    return mistakes


def _stateless(classes: Iterable[type[Task]], outside: Iterable[Hook]) -> list[Mistake]:
    without = next((owner.__name__ for owner in classes if owner.state_type is None), None)
    asking = [] if without is None else [hook for hook in outside if "state" in hook.parameters]
    return [
        Mistake(f"{hook.name} asks for state, and {without} has no state_type", f"taskset.task.{_family(hook.kind)}s")
        for hook in asking
    ]


def _merged(own: HookTable, outside: Iterable[Hook], rewards: Mapping[str, RewardSettings]) -> HookTable:
    """The class's hooks with those from outside in their place or behind them, and the configured weights."""
    by_name = {(_family(hook.kind), hook.name): hook for kind in HOOK_KINDS for hook in own[kind]}
    for hook in outside:
        place = (_family(hook.kind), hook.name)
        replaced = by_name.get(place)
        has_weight = isinstance(hook.function, JudgeReward) and hook.function.settings.weight is not None
        by_name[place] = _weighed(hook, replaced.weight) if replaced and not has_weight else hook
    for name, entry in rewards.items():
        hook = by_name.get(("reward", name))
        if hook is not None and entry.weight is not None:
            by_name["reward", name] = _weighed(hook, entry.weight)
    return {kind: tuple(hook for hook in by_name.values() if hook.kind == kind) for kind in HOOK_KINDS}


def _family(kind: str) -> str:
    """Rewards share their names, whether they look at one rollout or at all of a task."""
    return "reward" if kind == "group_reward" else kind


def _weighed(hook: Hook, weight: float) -> Hook:
    return replace(hook, weight=weight)
