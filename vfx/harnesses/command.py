"""Any program as the harness: it gets the task's text, calls the model as it always does, and ends."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from vfx.authoring.harness import Harness, Job
from vfx.errors import HarnessError, Mistake, RunError
from vfx.harnesses import preparation
from vfx.harnesses.placeholders import fill, used_names, wrong_names
from vfx.runtimes.base import ProgramResult

__all__ = ["Command"]

PROMPT_FILE = "prompt.txt"
SYSTEM_PROMPT_FILE = "system-prompt.txt"
MCP_FILE = ".vfx/mcp.json"
SECRET_MODE = 0o600
# MAX_ARG_STRLEN of Linux, the closing NUL included; elsewhere only the sum of all arguments is bounded.
MAX_ARGUMENT_BYTES = 131_071
IN_ARGV = frozenset(
    {
        "base_url",
        "mcp_config",
        "model",
        "prompt",
        "prompt_file",
        "root_url",
        "setup_dir",
        "system_prompt",
        "system_prompt_file",
        "workdir",
    }
)
IN_VARIABLES = (IN_ARGV | {"api_key"}) - {"prompt", "system_prompt"}


class Command(Harness):
    """Runs a program once per rollout. What it can't be told by arguments it finds in the variables that SDKs read."""

    tools_hint: ClassVar[str] = "name {mcp_config} in --harness.argv or a variable, if the program speaks MCP"
    user_hint: ClassVar[str] = "--harness.continue-argv says how it goes on"
    needs_prompt_file: ClassVar[bool] = False
    own_variables: ClassVar[Mapping[str, str]] = {}
    """What a preset sets beside `variables`, which win over it."""
    own_files: ClassVar[Mapping[str, str]] = {}
    """What a preset puts in the working directory, by path; filled in like variables, {api_key} too."""
    installation: ClassVar[str] = "is it installed?"
    """What to do when the program is missing."""

    argv: tuple[str, ...] = ()
    """The program and its arguments. {prompt_file}, {prompt}, {model}, {mcp_config} and others are filled in."""
    continue_argv: tuple[str, ...] = ()
    """Run after each answer for the user's next message, which takes the prompt's place. Empty = it can't go on."""
    prompt_via: Literal["auto", "file", "stdin", "argument"] = "auto"
    """How it gets the prompt. auto = as argv says, and by stdin when it names neither {prompt_file} nor {prompt}."""
    variables: dict[str, str] = Field(default_factory=dict[str, str])
    """More variables for it, filled in like argv; {api_key} too."""
    files: tuple[Path, ...] = ()
    """Files of this host that are put in its working directory, under their own names."""
    version_argv: tuple[str, ...] = ()
    """Run once per run; the first line it writes is recorded as the program's version. Empty = not asked."""
    setup_commands: tuple[tuple[str, ...], ...] = ()
    """Run one after the other in {setup_dir} before the first rollout, and not again as long as they stay the same."""
    setup_timeout: float | None = Field(default=600.0, gt=0)
    """Seconds for all of them and for `version_argv`; None = unbounded."""

    _version: str | None = PrivateAttr(default=None)
    _setup_dir: Path | None = PrivateAttr(default=None)

    def mistakes(self) -> list[Mistake]:
        """See `Harness.mistakes`."""
        if not self.argv:
            hint = """such as --harness.argv '["my-agent", "{prompt_file}"]'"""
            return [Mistake("no program is named", "--harness.argv", hint)]
        return [
            *(mistake for where, argv in self._argvs for mistake in self._wrong_argv(where, argv)),
            *self._wrong_placeholders(),
            *self._missing_files(),
        ]

    @property
    def _argvs(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        both = (("--harness.argv", self.argv), ("--harness.continue-argv", self.continue_argv))
        return [(where, argv) for where, argv in both if argv]

    def _wrong_argv(self, where: str, argv: tuple[str, ...]) -> list[Mistake]:
        mistakes: list[Mistake] = []
        if any("api_key" in used_names(arg) for arg in argv):
            what = "an argument can be read by everyone on this host, so {api_key} can't be in one"
            mistakes.append(Mistake(what, where, "the program finds it in OPENAI_API_KEY"))
        for arg in argv:
            mistakes += wrong_names(arg, IN_ARGV | {"api_key"}, where)
        variables = {**self.runtime.variables, **self.own_variables, **self.variables}
        missing = preparation.missing_program(argv[0], where, variables, hint=self.installation)
        return [*mistakes, *self._wrong_prompt(where, argv), *missing]

    def _wrong_placeholders(self) -> list[Mistake]:
        mistakes: list[Mistake] = []
        for name, value in self.variables.items():
            mistakes += wrong_names(value, IN_VARIABLES, f"--harness.variables.{name}")
        for arg in (*self.version_argv, *(arg for command in self.setup_commands for arg in command)):
            mistakes += wrong_names(arg, {"setup_dir"}, "--harness.setup-commands, --harness.version-argv")
        return mistakes

    def _wrong_prompt(self, option: str, argv: tuple[str, ...]) -> list[Mistake]:
        named = {name for arg in argv for name in used_names(arg)}
        where = f"--harness.prompt-via {self.prompt_via}"
        if self.prompt_via == "stdin" and named & {"prompt", "prompt_file"}:
            return [Mistake(f"{option} names {{prompt}} or {{prompt_file}} as well", where, "leave one of the two out")]
        if self.prompt_via == "file" and "prompt" in named:
            return [Mistake(f"{option} names {{prompt}}, which is the text itself", where, "use {prompt_file}")]
        if self.prompt_via == "argument" and "prompt_file" in named:
            return [Mistake(f"{option} names {{prompt_file}}", where, "use {prompt}")]
        return []

    def _missing_files(self) -> list[Mistake]:
        missing = [file for file in self.files if not file.is_file()]
        return [Mistake("there is no such file", f"--harness.files {file}") for file in missing]

    def record(self) -> Mapping[str, Any]:
        """See `Harness.record`; with the program's version."""
        version = {} if self._version is None else {"program_version": self._version}
        return {**super().record(), **version}

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Harness.serving`; sets the program up and asks for its version.

        Raises:
            RunError: One of the two failed.
        """
        async with preparation.preparing(self.runtime, self.setup_timeout) as prepare:
            if self.setup_commands:
                self._setup_dir = await prepare.set_up(self.setup_commands)
            if self.version_argv:
                argv = [fill(arg, {"setup_dir": str(self._setup_dir or "")}) for arg in self.version_argv]
                self._version = await prepare.first_line(argv, self._variables_before())
        yield

    def _variables_before(self) -> Mapping[str, str]:
        """The variables that need no rollout to be filled in; PATH is often one."""
        values = {"setup_dir": str(self._setup_dir or "")}
        every = {**self.own_variables, **self.variables}
        return {name: fill(value, values) for name, value in every.items() if used_names(value) <= values.keys()}

    def accepts_tools(self) -> bool:
        """See `Harness.accepts_tools`: it does when it is told where they are."""
        return self.supports_tools or self._names("mcp_config", (*self.argv, *self.continue_argv))

    def accepts_user(self) -> bool:
        """See `Harness.accepts_user`."""
        return bool(self.continue_argv)

    def files_for(self, job: Job) -> Mapping[str, str]:
        """What is put in the working directory of one rollout, by path; filled in like variables, {api_key} too."""
        return self.own_files

    async def run(self, job: Job) -> ProgramResult | None:
        """See `Harness.run`."""
        system_prompt, prompt = self._texts(job)
        workdir = await job.runtime.workdir()
        values = {
            "base_url": job.endpoint.base_url,
            "mcp_config": str(workdir / MCP_FILE),
            "model": job.endpoint.model,
            "prompt_file": str(workdir / PROMPT_FILE),
            "root_url": job.endpoint.root_url,
            "setup_dir": str(self._setup_dir or ""),
            "system_prompt": system_prompt,
            "system_prompt_file": str(workdir / SYSTEM_PROMPT_FILE),
            "workdir": str(workdir),
        }
        await self._place_files(job, values)
        result = await self._start(job, self.argv, {**values, "prompt": prompt})
        while job.user is not None and result.is_ok and result.exceeded is None:
            said = await job.user.respond()
            if said is None:
                break
            result = await self._start(job, self.continue_argv, {**values, "prompt": _encodable(said)})
        return result

    async def _place_files(self, job: Job, values: Mapping[str, str]) -> None:
        every = (*self.argv, *self.continue_argv)
        if self._names("system_prompt_file", every):
            await job.runtime.write(SYSTEM_PROMPT_FILE, values["system_prompt"])
        if self._names("mcp_config", every):
            await job.runtime.write(MCP_FILE, _mcp_config(job), mode=SECRET_MODE)
        for file in self.files:
            await job.runtime.write(file.name, _content(file))
        for path, text in self.files_for(job).items():
            text = fill(text, {**values, "api_key": job.endpoint.api_key})
            await job.runtime.write(path, text, mode=SECRET_MODE)

    async def _start(self, job: Job, argv: Sequence[str], values: Mapping[str, str]) -> ProgramResult:
        via = self._via(argv)
        if via == "file":
            await job.runtime.write(PROMPT_FILE, values["prompt"])
        for_variables = {**values, "api_key": job.endpoint.api_key}
        own = {name: fill(value, for_variables) for name, value in {**self.own_variables, **self.variables}.items()}
        return await job.runtime.run(
            self._arguments(argv, values, via),
            env={**job.env, **own},
            stdin=values["prompt"] if via == "stdin" else None,
        )

    def _via(self, argv: Sequence[str]) -> Literal["file", "stdin", "argument"]:
        if self.prompt_via != "auto":
            return self.prompt_via
        if self._names("prompt_file", argv):
            return "file"
        return "argument" if self._names("prompt", argv) else "stdin"

    def _names(self, name: str, argv: Sequence[str]) -> bool:
        texts = (*argv, *self.variables.values(), *self.own_variables.values(), *self.own_files.values())
        return any(name in used_names(text) for text in texts)

    def _texts(self, job: Job) -> tuple[str, str]:
        """The system prompt and the prompt, as text that any program can be given."""
        others = {message.role for message in job.messages} - {"system", "user"}
        if others:
            raise HarnessError(
                f"a program can be given text, not a conversation with {', '.join(sorted(others))} turns"
            )
        if any(not isinstance(message.content, str) for message in job.messages):
            raise HarnessError("a program can be given text, and this prompt has other content")
        system_prompt, prompt = _encodable(job.system_prompt or ""), _encodable(job.prompt)
        if not prompt:
            raise HarnessError("the task has no prompt, and nobody else opens the conversation")
        is_named = any(self._names(name, self.argv) for name in ("system_prompt", "system_prompt_file"))
        if not is_named and system_prompt:
            prompt = f"{system_prompt}\n\n{prompt}"
        return system_prompt, prompt

    def _arguments(self, given: Sequence[str], values: Mapping[str, str], via: str) -> Sequence[str]:
        argv = [fill(arg, values) for arg in given]
        argv[0] = preparation.resolved(argv[0])
        # Named by the option alone, it comes last.
        last = {"argument": "prompt", "file": "prompt_file"}.get(via)
        if last and not self._names(last, given):
            argv.append(values[last])
        for arg in argv:
            if "\0" in arg:
                raise HarnessError(f"the prompt holds a NUL character, which no argument can: {_other_ways()}")
            size = len(arg.encode())
            if sys.platform == "linux" and size > MAX_ARGUMENT_BYTES:
                limit = f"an argument can hold {MAX_ARGUMENT_BYTES:,} bytes on Linux"
                raise HarnessError(f"the prompt makes an argument of {size:,} bytes, and {limit}: {_other_ways()}")
        return argv


def _other_ways() -> str:
    return "pass it by --harness.prompt-via file or stdin"


def _mcp_config(job: Job) -> str:
    """The tool servers in the form that most programs read."""
    servers: dict[str, dict[str, Any]] = {}
    for name, server in job.tools.items():
        headers = {"headers": dict(server.headers)} if server.headers else {}
        servers[name] = {"type": "http", "url": server.url, **headers}
    return json.dumps({"mcpServers": servers}, indent=2)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise RunError(f"--harness.files {file}: can't be read: {error}") from error


def _encodable(text: str) -> str:
    """The text as UTF-8 can carry it: split surrogate pairs joined, lone ones U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
