"""Agents that people use, each a `Command` that knows its options.

The rollout's box is the only one: their own sandboxes and questions for permission are off. What they keep for
themselves goes into a folder of the rollout, and apart from what a task may have brought for them.
"""

from collections.abc import Mapping
from typing import ClassVar

from vfx.harnesses.command import Command

__all__ = ["ClaudeCode", "Codex", "MiniSweAgent"]


class ClaudeCode(Command):
    """Claude Code 2: works on the files of the working directory. Expects `claude` on PATH; the prompt is its stdin."""

    installation: ClassVar[str] = "npm install -g @anthropic-ai/claude-code"
    own_variables: ClassVar[Mapping[str, str]] = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": "{workdir}/.claude-home",
        # Root may not skip its permissions anywhere else.
        "IS_SANDBOX": "1",
    }

    argv: tuple[str, ...] = ("claude", "-p", "--dangerously-skip-permissions", "--model", "{model}")
    """The program and its arguments."""
    version_argv: tuple[str, ...] = ("claude", "--version")
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""


class Codex(Command):
    """Codex: works on the files of the working directory. Expects `codex` on PATH; the prompt is its stdin."""

    installation: ClassVar[str] = "npm install -g @openai/codex"
    own_variables: ClassVar[Mapping[str, str]] = {"CODEX_HOME": "{workdir}/.codex-home"}
    own_files: ClassVar[Mapping[str, str]] = {
        ".codex-home/config.toml": """\
model_provider = "vfx"
check_for_update_on_startup = false
# A tool of OpenAI's own servers, which others refuse.
web_search = "disabled"

[model_providers.vfx]
name = "vfx"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[feedback]
enabled = false

[otel]
exporter = "none"
trace_exporter = "none"
metrics_exporter = "none"
"""
    }

    argv: tuple[str, ...] = (
        *("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "-m", "{model}", "-"),
    )
    """The program and its arguments."""
    version_argv: tuple[str, ...] = ("codex", "--version")
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""


class MiniSweAgent(Command):
    """mini-swe-agent 2: solves the task with shell commands in the working directory. Expects `mini` on PATH."""

    installation: ClassVar[str] = "pip install mini-swe-agent"
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
    version_argv: tuple[str, ...] = ("env", "-u", "MSWEA_SILENT_STARTUP", "mini", "--help")
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""
