"""What one eval is asked to do."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny

from vfx.authoring.harness import Harness
from vfx.authoring.task import Task, TaskResources
from vfx.authoring.taskset import Taskset
from vfx.clients.base import ClientSettings, HttpSettings
from vfx.interception.base import ElasticSettings, InterceptionSettings
from vfx.messages import Sampling
from vfx.runtimes.base import SubprocessSettings
from vfx.settings import Settings

__all__ = ["EvalConfig", "Retries", "RetryKind", "StageName", "Timeouts"]

RetryKind = Literal["provider", "task", "scoring", "harness", "toolset", "user", "sandbox", "interception", "tunnel"]
StageName = Literal["setup", "rollout", "finalize", "scoring"]

DEFAULT_CONCURRENT = 32


class Timeouts(Settings):
    """Bounds on the stages of a rollout, in seconds. One that is given goes before a task's own, a default behind."""

    setup: float | None = Field(default=600.0, gt=0)
    """Seconds for the runtime and the task's setup; none = unbounded."""
    rollout: float | None = Field(default=None, gt=0)
    """Seconds for the program; what it reached by then is scored. None = unbounded."""
    finalize: float | None = Field(default=600.0, gt=0)
    """Seconds for the task's finalize; none = unbounded."""
    scoring: float | None = Field(default=600.0, gt=0)
    """Seconds for all rewards and metrics of a rollout; none = unbounded."""
    total: float | None = Field(default=None, gt=0)
    """Seconds for a whole attempt; None = unbounded."""


class Retries(Settings):
    """When a failed rollout is tried again."""

    max_attempts: int = Field(default=1, ge=1)
    """Attempts at one rollout, the first included."""
    on: tuple[RetryKind, ...] = ("provider", "sandbox", "tunnel", "interception")
    """Kinds of error that are tried again."""


class EvalConfig(Settings):
    """The options of `vfx eval`."""

    taskset: SerializeAsAny[Taskset[Any]]
    """The environment, and its own options."""
    harness: SerializeAsAny[Harness]
    """The program that drives the model, and its own options."""
    interception: InterceptionSettings = ElasticSettings()
    """The endpoint that the program calls."""
    client: ClientSettings = HttpSettings()
    """How the model is reached."""
    model: str | None = None
    """The model to evaluate; may be left out where the client has one of its own."""
    sampling: Sampling = Sampling()
    """Sampling settings imposed on every call."""

    num_tasks: int | None = Field(default=None, ge=1)
    """How many tasks; None = all."""
    num_rollouts: int = Field(default=1, ge=1)
    """Rollouts of each task."""
    max_concurrent: Annotated[int, Field(ge=1)] | Literal["auto"] = DEFAULT_CONCURRENT
    """Rollouts at a time, or `auto`: what the provider takes."""
    shuffle: bool = False
    """Take the tasks in random order, the same for the same seed."""
    seed: int = 0
    """Seed for the order of tasks."""
    include: tuple[str, ...] = ()
    """Only tasks that match one: a key, an id, a pattern of the name such as 'add-*', or a range such as 10:20."""
    exclude: tuple[str, ...] = ()
    """No tasks that match one, in the same forms."""

    max_turns: int | None = Field(default=None, ge=1)
    """Model calls of one rollout; None = unbounded."""
    max_input_tokens: int | None = Field(default=None, ge=1)
    """Prompt tokens of one rollout, all calls together; None = unbounded."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Answer tokens of one rollout, all calls together; None = unbounded."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Tokens of one rollout, prompts and answers together; None = unbounded."""
    timeout: Timeouts = Timeouts()
    """Bounds on the stages of a rollout."""
    retries: Retries = Retries()
    """When a failed rollout is tried again."""

    output_dir: Path = Path("outputs")
    """Where run folders are made."""
    name: str | None = Field(default=None, min_length=1)
    """Name of this run's folder; None = the time and a random part."""
    max_error_share: float = Field(default=0.5, ge=0, le=1)
    """Share of errored rollouts above which the run has failed (exit 1)."""
    fail_under: float | None = None
    """Mean reward over scored rollouts below which the exit code is 3; None = no such gate."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is written to the run's log."""
    display: Literal["auto", "live", "plain", "none"] = "auto"
    """Progress on stderr; `auto` is `live` on a terminal outside CI, else `plain` lines."""

    @property
    def workers(self) -> int:
        """How much at a time of what calls no model, which `auto` has nothing to go by for."""
        return DEFAULT_CONCURRENT if self.max_concurrent == "auto" else self.max_concurrent

    def seconds_for(self, stage: StageName, task: Task) -> float | None:
        """Bound on a stage of a rollout of `task`: what the user gave, else what the task says, else the default."""
        return _chosen(stage, self.taskset.task.timeout, self.timeout, task.timeout)

    def runtime_for(self, task: Task) -> SubprocessSettings:
        """The runtime's settings for a rollout of `task`, its resources by the same order as its time."""
        runtime = self.harness.runtime
        names = TaskResources.model_fields
        chosen = {name: _chosen(name, self.taskset.task.resources, runtime, task.resources) for name in names}
        is_same = all(getattr(runtime, name) == value for name, value in chosen.items())
        return runtime if is_same else runtime.model_copy(update=chosen)


def _chosen(name: str, for_every_task: Settings, of_the_run: Settings, own: Settings) -> float | None:
    """What `--taskset.task` says, else what the run was given, else what the task says, else the run's default."""
    if (given := getattr(for_every_task, name)) is not None:
        return given
    wanted = getattr(own, name)
    is_given = name in of_the_run.model_fields_set
    return getattr(of_the_run, name) if is_given or wanted is None else wanted
