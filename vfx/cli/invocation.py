"""What `vfx eval` was asked to do, once it is known to be free of mistakes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vfx.cli.layers import Source
from vfx.runner.config import EvalConfig

__all__ = ["Invocation"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of the command, free of mistakes."""

    config: EvalConfig
    sources: Mapping[str, Source]
    """Where each value that is no default was given, by its dotted path."""
    dry_run: bool
    """Show the configuration and start nothing."""
    as_json: bool
    """The summary as JSON on stdout."""
    replace: bool
    """A run folder that is in use may be emptied."""
    resume: Path | None
    """The folder of the run that goes on; None for a new run."""
    is_demo: bool
    """No environment was named."""
