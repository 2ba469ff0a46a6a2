"""Checks the tasks of an environment without a model, to find what would spoil a run before one is paid for.

Each task goes through a rollout whose model answers with an empty reply, in a real runtime and through the real
endpoint. So its setup, its rewards and its metrics have run, and what doing nothing earns is known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from vfx._concurrency import is_blocked_loop
from vfx.authoring.hooks import call_hook, lifecycle_hook
from vfx.authoring.registry import harness_class
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.user import ModelUser, ScriptedUser
from vfx.clients.base import ScriptedSettings
from vfx.errors import RolloutError, SandboxError, ScoringError, TaskError, attributed
from vfx.interception.base import ServerSettings
from vfx.runner.config import EvalConfig
from vfx.runner.environment import Environment
from vfx.runner.episode import Episode
from vfx.runner.plan import Plan, PlannedRollout
from vfx.runner.rollout import Rollout
from vfx.runner.scoring import has_group_rewards
from vfx.runner.state import fresh_state
from vfx.runner.summary import Estimate
from vfx.runtimes.base import Runtime
from vfx.trace.record import Trace, encode_record

__all__ = ["Finding", "Level", "Validation", "idle_config", "task_label", "validate"]

Level = Literal["failed", "warning", "note"]

MOSTLY = 0.5
"""A reward for doing nothing is worth a warning when more than this share of the tasks gives one."""
GROUP_SIZE = 2
"""Empty rollouts that a group reward is tried on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one task, or about all of them."""

    level: Level
    check: str
    """What was looked at, such as `prompt`."""
    message: str
    task: str = ""
    """Which task, as people call it; "" = the taskset as a whole."""


@dataclass(slots=True)
class Validation:
    """What has been found so far."""

    tasks: int
    findings: list[Finding] = field(default_factory=list[Finding])
    done: int = 0
    """Tasks that have been through all checks."""
    checked: int = 0
    """Tasks whose `check` was run."""
    earned: list[float] = field(default_factory=list[float])
    """The reward of doing nothing, for each task that gave one."""

    @property
    def failed(self) -> int:
        """Findings that must be dealt with."""
        return sum(finding.level == "failed" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """Findings that may be meant so."""
        return sum(finding.level == "warning" for finding in self.findings)

    @property
    def idle_reward(self) -> Estimate:
        """The reward of doing nothing, over the tasks that gave one."""
        return Estimate.of([[reward] for reward in self.earned])

    def groups(self) -> Iterator[tuple[Finding, Sequence[str]]]:
        """Findings that say the same, once, with the tasks that they are about; what fails comes first."""
        grouped: dict[tuple[Level, str, str], list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault((finding.level, finding.check, finding.message), []).append(finding)
        order = ("failed", "warning", "note")
        for alike in sorted(grouped.values(), key=lambda group: order.index(group[0].level)):
            yield alike[0], [finding.task for finding in alike if finding.task]


def task_label(task: Task, occurrence: int = 0) -> str:
    """What people call a task: its id, its name, or its key."""
    return f"{task.id or task.name or task.key}{f' (equal task {occurrence + 1})' if occurrence else ''}"


def idle_config(config: EvalConfig) -> EvalConfig:
    """The configuration of an eval of `config` whose model says nothing at all."""
    chat = harness_class("chat")(id="chat", runtime=config.harness.runtime)
    client = ScriptedSettings(replies=("",))
    changes = {"harness": chat, "client": client, "model": None, "interception": ServerSettings(), "max_turns": 1}
    return config.model_copy(update={**changes, "taskset": _with_idle_user(config.taskset)})


def _with_idle_user(taskset: Taskset[Any]) -> Taskset[Any]:
    """The taskset with a user that says nothing in the place of one that a model plays, which would be asked."""
    if not isinstance(getattr(taskset.task, "user", None), ModelUser):
        return taskset
    task = taskset.task.model_copy(update={"user": ScriptedUser(lines=("",))})
    return taskset.model_copy(update={"task": task})


async def validate(environment: Environment, plan: Plan, found: Validation) -> None:
    """Check every task of `plan`; what is found is added to `found` as it is found.

    Args:
        environment: Of a configuration that `idle_config` has made.
        plan: The tasks.
        found: Where findings go; when this is cancelled it holds those of the tasks that were done.

    Raises:
        RunError: What all tasks share can't be started.
    """
    found.findings += _equal_tasks(plan)
    found.findings += _unrewarded(plan)
    waiting = iter(plan.tasks)
    async with environment.serving(), anyio.create_task_group() as group:
        for number in range(min(environment.config.workers, len(plan.tasks))):
            group.start_soon(_work, environment, waiting, found, name=f"validator {number}")
    found.findings += _earned_by_nothing(found)


async def _work(environment: Environment, waiting: Iterator[tuple[Task, int]], found: Validation) -> None:
    for task, occurrence in waiting:
        label = task_label(task, occurrence)
        messages = [Finding("failed", check, message, label) for check, message in _readable(environment, task)]
        found.findings += messages
        if not messages:
            try:
                await _try(environment, PlannedRollout(task, occurrence, 0), label, found)
            except BaseException as error:
                if not is_blocked_loop(error):
                    raise
                # A signal has come and this task's code kept it waiting; the cancellation follows at once.
                await anyio.sleep_forever()
        found.done += 1


async def _try(environment: Environment, planned: PlannedRollout, label: str, found: Validation) -> None:
    trace = await _run_empty(environment, planned)
    found.findings += [Finding("failed", error.kind, error.message, label) for error in trace.errors]
    if trace.reward is not None:
        found.earned.append(trace.reward)
    # What failed before the scoring would only fail again.
    if all(error.kind == ScoringError.kind for error in trace.errors):
        await _run_check(environment, planned, label, found)


def _equal_tasks(plan: Plan) -> Iterator[Finding]:
    shared = Counter(task.key for task, _ in plan.tasks)
    for task, occurrence in plan.tasks:
        if occurrence == 0 and shared[task.key] > 1:
            yield Finding("note", "key", f"{shared[task.key]} tasks are equal and share this key", task_label(task))


def _unrewarded(plan: Plan) -> Iterator[Finding]:
    for task, occurrence in plan.tasks:
        if not task.hooks("reward") and not has_group_rewards(task):
            message = f"{type(task).__name__} has no reward, so nothing would be scored"
            yield Finding("warning", "reward", message, task_label(task, occurrence))


def _readable(environment: Environment, task: Task) -> Iterator[tuple[str, str]]:
    """What keeps a task from being asked or stored: which check, and how."""
    try:
        messages = task.messages(environment.system_prompt)
    except Exception as error:  # noqa: BLE001 - code of the task's author, or data of theirs
        yield "prompt", f"{type(error).__name__}: {error}"
        return
    opens = any(getattr(type(owner), "user", None) is not None for owner in (task, environment.taskset))
    if not messages and not opens:
        yield "prompt", "has no prompt, and nobody else opens the conversation"
    elif messages and not any(message.text.strip() for message in messages):
        yield "prompt", "is empty"
    try:
        encode_record(task.data)
    except ValueError as error:
        yield "data", f"can't be stored as JSON: {error}"


async def _run_empty(environment: Environment, planned: PlannedRollout) -> Trace:
    """Make a rollout in which the model says nothing."""
    count = GROUP_SIZE if has_group_rewards(planned.task) else 1
    traces = [
        await Rollout(environment, PlannedRollout(planned.task, planned.occurrence, number)).run()
        for number in range(count)
    ]
    if count > 1 and not any(trace.errors for trace in traces):
        seconds = planned.task.timeout.scoring or environment.config.timeout.scoring
        await Episode(planned.task, planned.identity[:2], left=0, traces=traces).score(
            environment.hook_threads, seconds
        )
    return traces[0]


def _earned_by_nothing(found: Validation) -> Iterator[Finding]:
    positive = sum(reward > 0 for reward in found.earned)
    if positive > MOSTLY * len(found.earned):
        mean = found.idle_reward.mean or 0.0
        message = f"an empty reply earns more than 0 on {positive} of {len(found.earned)} tasks, {mean:.3f} on average"
        yield Finding("warning", "reward", message)


async def _run_check(environment: Environment, planned: PlannedRollout, label: str, found: Validation) -> None:
    """Ask the task's own `check`, in a runtime that nothing but its setup has touched."""
    if lifecycle_hook(type(planned.task), "check") is None:
        return
    seconds = planned.task.timeout.scoring or environment.config.timeout.scoring
    try:
        message = f"took longer than {seconds:g} s (--timeout.scoring)" if seconds else ""
        with anyio.move_on_after(seconds):
            message = _verdict(await _checked(environment, planned))
    except RolloutError as error:
        message = str(error)
    if message:
        found.findings.append(Finding("failed", "check", message, label))
    found.checked += 1


def _verdict(given: object) -> str:
    """What is wrong with what `check` gave; "" = nothing."""
    if given is True:
        return ""
    return "the reference solution is not right" if given is False else f"must give True or False, got {given!r:.200}"


async def _checked(environment: Environment, planned: PlannedRollout) -> object:
    trace = Rollout(environment, planned).trace
    trace.state = fresh_state(planned.task)
    runtime = environment.create_runtime(planned.task)
    try:
        with attributed(SandboxError, "boot"):
            await runtime.start()
        with attributed(TaskError, "setup"):
            await _call(environment, planned.task, "setup", runtime, trace)
        with attributed(TaskError, "check"):
            return await _call(environment, planned.task, "check", runtime, trace)
    finally:
        await runtime.stop()


async def _call(environment: Environment, task: Task, name: str, runtime: Runtime, trace: Trace) -> object:
    hook = lifecycle_hook(type(task), name)
    available: Mapping[str, Any] = {"runtime": runtime, "task": task, "trace": trace, "state": trace.state}
    return None if hook is None else await call_hook(hook, task, available, environment.hook_threads)
