"""Agents that people use, as a `Command` that knows their options."""

from collections.abc import Mapping
from typing import ClassVar

from vfx.harnesses.command import Command

__all__ = ["MiniSweAgent"]


class MiniSweAgent(Command):
    """mini-swe-agent 2: solves the task with shell commands in the working directory. Expects `mini` on PATH."""

    own_variables: ClassVar[Mapping[str, str]] = {
        "MSWEA_CONFIGURED": "true",
        # It can't price what it doesn't know, and would end there.
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "true",
        # Its library would fetch a price list from the web at every start.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }

    argv: tuple[str, ...] = ("mini", "-m", "openai/{model}", "-t", "{prompt}", "-y", "--exit-immediately")
    """The program and its arguments."""
