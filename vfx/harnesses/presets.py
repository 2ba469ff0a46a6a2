"""Agents that people use, each a `Command` that knows its options.

The rollout's box is the only one: their own sandboxes and questions for permission are off. What they keep for
themselves goes into a folder of the rollout, and apart from what a task may have brought for them.
"""

import json
from collections.abc import Mapping
from typing import ClassVar

from vfx.authoring.harness import Harness, Job, ToolServer
from vfx.harnesses.command import Command

__all__ = ["ClaudeCode", "Codex", "MiniSweAgent"]

_CODEX_CONFIG = ".codex-home/config.toml"


class ClaudeCode(Command):
    """Claude Code 2: works on the files of the working directory. Expects `claude` on PATH; the prompt is its stdin."""

    installation: ClassVar[str] = "npm install -g @anthropic-ai/claude-code"
    own_variables: ClassVar[Mapping[str, str]] = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": "{workdir}/.claude-home",
        # Root may not skip its permissions anywhere else.
        "IS_SANDBOX": "1",
        # It would ask the model while tool servers are still being connected to, or give up on them after 5 s.
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_CONNECT_TIMEOUT_MS": "60000",
        # How long a tool may be silent is a matter of its server.
        "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "0",
    }

    argv: tuple[str, ...] = (
        *("claude", "-p", "--dangerously-skip-permissions", "--model", "{model}"),
        *("--strict-mcp-config", "--mcp-config", "{mcp_config}"),
    )
    """The program and its arguments."""
    continue_argv: tuple[str, ...] = (
        *("claude", "-p", "--continue", "--dangerously-skip-permissions", "--model", "{model}"),
        *("--strict-mcp-config", "--mcp-config", "{mcp_config}"),
    )
    """Run after each answer for the user's next message."""
    version_argv: tuple[str, ...] = ("claude", "--version")
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""


class Codex(Command):
    """Codex: works on the files of the working directory. Expects `codex` on PATH; the prompt is its stdin."""

    supports_tools: ClassVar[bool] = True
    installation: ClassVar[str] = "npm install -g @openai/codex"
    own_variables: ClassVar[Mapping[str, str]] = {"CODEX_HOME": "{workdir}/.codex-home"}
    own_files: ClassVar[Mapping[str, str]] = {
        _CODEX_CONFIG: """\
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
    continue_argv: tuple[str, ...] = (
        *("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "-m", "{model}"),
        *("resume", "--last", "-"),
    )
    """Run after each answer for the user's next message."""
    version_argv: tuple[str, ...] = ("codex", "--version")
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""

    def files_for(self, job: Job) -> Mapping[str, str]:
        """See `Command.files_for`; with the tool servers."""
        config = self.own_files[_CODEX_CONFIG]
        return {**self.own_files, _CODEX_CONFIG: config + "".join(map(_codex_server, job.tools.values()))}


def _codex_server(server: ToolServer) -> str:
    """A tool server as Codex reads it. Text of JSON is text of TOML, but for what URLs and headers can't hold."""
    headers = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in server.headers.items())
    return f"""
[mcp_servers.{json.dumps(server.name)}]
url = {json.dumps(server.url)}
http_headers = {{ {headers} }}
required = true
startup_timeout_sec = 60
tool_timeout_sec = 3600
default_tools_approval_mode = "approve"
"""


class MiniSweAgent(Command):
    """mini-swe-agent 2: solves the task with shell commands in the working directory. Expects `mini` on PATH."""

    installation: ClassVar[str] = "pip install mini-swe-agent"
    tools_hint: ClassVar[str] = Harness.tools_hint
    user_hint: ClassVar[str] = Harness.user_hint
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
