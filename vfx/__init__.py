"""vfx: evaluate language-model agents.

Names what people write environments with. Each name is imported when it is first used, because every start of the
command pays for what this module imports.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vfx.authoring import text
    from vfx.authoring.harness import Endpoint, Harness, Job
    from vfx.authoring.hooks import group_reward, intercept, metric, reward, stop
    from vfx.authoring.judge import Judge
    from vfx.authoring.judge_settings import Criterion, JudgeModel, JudgeSampling, ReferenceJudge, RubricJudge
    from vfx.authoring.state import State
    from vfx.authoring.task import Task, TaskResources, TaskTimeouts
    from vfx.authoring.taskset import Taskset
    from vfx.authoring.toolset import Toolset, tool
    from vfx.authoring.user import ModelUser, ScriptedUser, User
    from vfx.errors import (
        ConfigError,
        HarnessError,
        InterceptionError,
        ProviderError,
        RolloutError,
        SandboxError,
        ScoringError,
        TaskError,
        ToolsetError,
        TunnelError,
        UserError,
        VfxError,
    )
    from vfx.messages import Message, ToolCall, Usage
    from vfx.runtimes.base import ProgramResult, Runtime
    from vfx.trace.record import Trace

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "vfx.errors",
    "Criterion": "vfx.authoring.judge_settings",
    "Endpoint": "vfx.authoring.harness",
    "Harness": "vfx.authoring.harness",
    "HarnessError": "vfx.errors",
    "InterceptionError": "vfx.errors",
    "Job": "vfx.authoring.harness",
    "Judge": "vfx.authoring.judge",
    "JudgeModel": "vfx.authoring.judge_settings",
    "JudgeSampling": "vfx.authoring.judge_settings",
    "Message": "vfx.messages",
    "ModelUser": "vfx.authoring.user",
    "ProgramResult": "vfx.runtimes.base",
    "ProviderError": "vfx.errors",
    "ReferenceJudge": "vfx.authoring.judge_settings",
    "RolloutError": "vfx.errors",
    "RubricJudge": "vfx.authoring.judge_settings",
    "Runtime": "vfx.runtimes.base",
    "SandboxError": "vfx.errors",
    "ScoringError": "vfx.errors",
    "ScriptedUser": "vfx.authoring.user",
    "State": "vfx.authoring.state",
    "Task": "vfx.authoring.task",
    "TaskError": "vfx.errors",
    "TaskResources": "vfx.authoring.task",
    "TaskTimeouts": "vfx.authoring.task",
    "Taskset": "vfx.authoring.taskset",
    "ToolCall": "vfx.messages",
    "Toolset": "vfx.authoring.toolset",
    "ToolsetError": "vfx.errors",
    "Trace": "vfx.trace.record",
    "TunnelError": "vfx.errors",
    "Usage": "vfx.messages",
    "User": "vfx.authoring.user",
    "UserError": "vfx.errors",
    "VfxError": "vfx.errors",
    "group_reward": "vfx.authoring.hooks",
    "intercept": "vfx.authoring.hooks",
    "metric": "vfx.authoring.hooks",
    "reward": "vfx.authoring.hooks",
    "stop": "vfx.authoring.hooks",
    "tool": "vfx.authoring.toolset",
}
_MODULES = {"text": "vfx.authoring.text"}

__all__ = [
    "ConfigError",
    "Criterion",
    "Endpoint",
    "Harness",
    "HarnessError",
    "InterceptionError",
    "Job",
    "Judge",
    "JudgeModel",
    "JudgeSampling",
    "Message",
    "ModelUser",
    "ProgramResult",
    "ProviderError",
    "ReferenceJudge",
    "RolloutError",
    "RubricJudge",
    "Runtime",
    "SandboxError",
    "ScoringError",
    "ScriptedUser",
    "State",
    "Task",
    "TaskError",
    "TaskResources",
    "TaskTimeouts",
    "Taskset",
    "ToolCall",
    "Toolset",
    "ToolsetError",
    "Trace",
    "TunnelError",
    "Usage",
    "User",
    "UserError",
    "VfxError",
    "__version__",
    "group_reward",
    "intercept",
    "metric",
    "reward",
    "stop",
    "text",
    "tool",
]


def __getattr__(name: str) -> Any:
    # importlib itself is already loaded by every interpreter; importing it at the top would name it publicly.
    from importlib import import_module  # noqa: PLC0415

    if home := _HOMES.get(name):
        value: Any = getattr(import_module(home), name)
    elif home := _MODULES.get(name):
        value = import_module(home)
    else:
        raise AttributeError(f"module 'vfx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
