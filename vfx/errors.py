"""The exception tree. Imports only the standard library.

```text
VfxError
├── ConfigError            the user's mistake, found before anything started: exit 2
├── RunError               the run as a whole can't go on: exit 1
└── RolloutError           one rollout failed: recorded on its trace, never a crash
    ├── ProviderError      the model provider refused, failed or went silent
    │   └── DriftError     a program that is run again asks what is on no record
    ├── TaskError          the environment author's setup, finalize or stop hook
    │   └── ScoringError   a reward or metric
    ├── HarnessError       the program that drives the model
    ├── ToolsetError       a tool server
    ├── UserError          the simulated user
    ├── SandboxError       the box the program runs in
    └── InterceptionError  our endpoint
        └── TunnelError    the way to it from another host
```
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, cast

__all__ = [
    "ConfigError",
    "DriftError",
    "HarnessError",
    "InterceptionError",
    "Mistake",
    "ProviderError",
    "RolloutError",
    "RunError",
    "SandboxError",
    "ScoringError",
    "TaskError",
    "ToolsetError",
    "TunnelError",
    "UserError",
    "VfxError",
    "attributed",
    "root_cause",
]


class VfxError(Exception):
    """Everything that vfx raises on purpose."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with what the user wrote."""

    what: str
    """What is wrong and what was expected, in one sentence without a full stop."""
    where: str = ""
    """The flag, the environment variable, or the file with its dotted path."""
    hint: str = ""
    """What to do about it; empty when the sentence says it all."""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(VfxError):
    """What the user wrote can't be run. Carries every mistake that was found, so that all are shown at once."""

    def __init__(self, *mistakes: Mistake | str) -> None:
        self.mistakes: tuple[Mistake, ...] = tuple(m if isinstance(m, Mistake) else Mistake(m) for m in mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class RunError(VfxError):
    """The run as a whole can't go on: its shared resources failed to start, or its results can't be kept."""


class RolloutError(VfxError):
    """One rollout failed; `kind` is the boundary it crossed and what `--retries.on` names."""

    kind: ClassVar[str] = "rollout"

    fatal: str | None = None
    """Set when every other rollout would fail for the same reason (a wrong key, an unknown host): names that reason."""


class ProviderError(RolloutError):
    """The model provider refused, failed, or went silent."""

    kind: ClassVar[str] = "provider"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        fatal: str | None = None,
        truncated: bool = False,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.fatal = fatal
        self.truncated = truncated
        """True when the prompt no longer fits the model's context: the rollout ends as truncated, not as an error."""
        self.is_final = is_final
        """True when asking again is of no use for longer than the user is willing to wait: programs are told so."""


class DriftError(ProviderError):
    """A program that is run again on recorded answers asks what is on no record: the rollout can't go on."""

    kind: ClassVar[str] = "drift"


class TaskError(RolloutError):
    """The environment author's code failed: setup, finalize or a stop condition."""

    kind: ClassVar[str] = "task"


class ScoringError(TaskError):
    """A reward or metric failed, or gave something that is not a finite number."""

    kind: ClassVar[str] = "scoring"


class HarnessError(RolloutError):
    """The program that drives the model failed."""

    kind: ClassVar[str] = "harness"

    def __init__(self, message: str, *, ended: str | None = None) -> None:
        super().__init__(message)
        self.ended = ended
        """How the program ended, as the stop condition tells it (`crash`, `killed`, ...); None = that isn't known."""


class ToolsetError(RolloutError):
    """A tool server could not be started, or died."""

    kind: ClassVar[str] = "toolset"


class UserError(RolloutError):
    """The simulated user failed."""

    kind: ClassVar[str] = "user"


class SandboxError(RolloutError):
    """The box that the program runs in failed."""

    kind: ClassVar[str] = "sandbox"


class InterceptionError(RolloutError):
    """The endpoint that the program calls failed."""

    kind: ClassVar[str] = "interception"


class TunnelError(InterceptionError):
    """The way to the endpoint from another host could not be opened, or was lost."""

    kind: ClassVar[str] = "tunnel"


def root_cause(error: BaseException) -> BaseException:
    """The one exception that a chain of exception groups with a single member wraps; else `error` itself."""
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        return root_cause(members[0]) if len(members) == 1 else cast("BaseException", error)
    return error


@contextmanager
def attributed(owner: type[RolloutError], what: str) -> Generator[None]:
    """Give a foreign error the owner at whose boundary it surfaced; an owned error passes unchanged.

    Raises:
        RolloutError: Of type `owner`, chained to the foreign error, with the text `what: Type: message`.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - this is the boundary
        cause = root_cause(error)
        if isinstance(cause, RolloutError | RunError):
            raise cause from cause.__cause__
        text = str(cause)
        raise owner(f"{what}: {type(cause).__name__}{': ' + text if text else ''}") from cause
    except SystemExit as error:
        # Else one hook of one rollout would end the run, and with the exit code of its choice.
        raise owner(f"{what}: it calls sys.exit({'' if error.code is None else repr(error.code)})") from error
