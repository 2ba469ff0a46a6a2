import json
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from vfx.authoring.harness import Endpoint, Job, Speaker, ToolServer
from vfx.authoring.task import Task
from vfx.errors import HarnessError
from vfx.harnesses.command import Command
from vfx.runtimes.base import SubprocessSettings
from vfx.runtimes.programs import Programs
from vfx.runtimes.subprocess import SubprocessRuntime

pytestmark = pytest.mark.anyio

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], sys.stdin.read(), dict(os.environ)]))"


@pytest.fixture
async def runtime() -> AsyncGenerator[SubprocessRuntime]:
    async with Programs().serving() as programs:
        runtime = SubprocessRuntime(SubprocessSettings(max_output_bytes=8_000_000), programs)
        yield runtime
        await runtime.stop()


def command(*argv: str, program: str = SHOW, **options: Any) -> Command:
    return Command.model_validate({"argv": (sys.executable, "-c", program, *argv), **options})


async def show(
    harness: Command,
    runtime: SubprocessRuntime,
    prompt: Any = "hi",
    *,
    tools: Sequence[ToolServer] = (),
    user: Speaker | None = None,
    **task: Any,
) -> Any:
    """The arguments, the input and the variables that the program finds when it is run last."""
    endpoint = Endpoint("http://127.0.0.1:1/v1", "secret", "m")
    work = Task(prompt=prompt, **task)
    servers = {server.name: server for server in tools}
    async with harness.serving():
        result = await harness.run(Job(endpoint, work.messages(), work, runtime, tools=servers, user=user))
    assert result is not None
    assert result.is_ok, result.stderr
    return json.loads(result.stdout)


NASTY = "--help; $(touch x) \"quoted\" 'single' \\ {model} ü\n\nend"


async def test_prompt_comes_by_stdin_when_argv_names_none(runtime: SubprocessRuntime) -> None:
    assert (await show(command(), runtime, NASTY))[:2] == [[], NASTY]


async def test_prompt_comes_as_an_argument_as_it_is(runtime: SubprocessRuntime) -> None:
    assert (await show(command("{prompt}", "{{prompt}}"), runtime, NASTY))[0] == [NASTY, "{prompt}"]


@pytest.mark.parametrize("prompt", [NASTY, "x" * 3_145_728, "nul\0inside"])
async def test_prompt_comes_by_file_whatever_it_holds(runtime: SubprocessRuntime, prompt: str) -> None:
    [path], *_ = await show(command("{prompt_file}"), runtime, prompt)
    assert (await runtime.read(path)).decode() == prompt


@pytest.mark.parametrize("prompt", ["x" * 3_145_728, "nul\0inside"])
async def test_stdin_carries_what_an_argument_can_not(runtime: SubprocessRuntime, prompt: str) -> None:
    assert (await show(command(), runtime, prompt))[1] == prompt
    with pytest.raises(HarnessError, match=r"--harness\.prompt-via file or stdin"):
        await show(command("{prompt}"), runtime, prompt)


async def test_option_without_placeholder_puts_it_last(runtime: SubprocessRuntime) -> None:
    assert (await show(command("-p", prompt_via="argument"), runtime))[0] == ["-p", "hi"]
    [path], *_ = await show(command(prompt_via="file"), runtime)
    assert await runtime.read(path) == b"hi"


async def test_lone_surrogates_become_replacement_characters(runtime: SubprocessRuntime) -> None:
    assert (await show(command("{prompt}"), runtime, "\ud835 \ud83d\ude00"))[0] == ["\ufffd 😀"]


async def test_system_prompt_has_a_file_or_stands_before_the_prompt(runtime: SubprocessRuntime) -> None:
    [path], prompt, _ = await show(command("{system_prompt_file}"), runtime, system_prompt="Be brief.")
    assert (await runtime.read(path), prompt) == (b"Be brief.", "hi")
    assert (await show(command(), runtime, system_prompt="Be brief."))[1] == "Be brief.\n\nhi"
    assert (await show(command("{system_prompt}"), runtime))[0] == [""]


async def test_variables_are_those_of_the_sdks_and_ones_own(runtime: SubprocessRuntime) -> None:
    harness = command("{model}", "{root_url}", variables={"MY_KEY": "{api_key}", "MY_URL": "{base_url}"})
    arguments, _, env = await show(harness, runtime)
    assert arguments == ["m", "http://127.0.0.1:1"]
    assert env["OPENAI_BASE_URL"] == env["OPENAI_API_BASE"] == env["MY_URL"] == "http://127.0.0.1:1/v1"
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert env["OPENAI_API_KEY"] == env["ANTHROPIC_API_KEY"] == env["MY_KEY"] == "secret"
    assert env["HOME"] == str(await runtime.workdir())


async def test_files_are_put_in_the_working_directory(runtime: SubprocessRuntime, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0\xff")
    await show(command(files=(tmp_path / "data.bin",)), runtime)
    assert await runtime.read("data.bin") == b"\0\xff"


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        ({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},),
    ],
)
async def test_what_is_no_text_is_refused(runtime: SubprocessRuntime, prompt: Any) -> None:
    with pytest.raises(HarnessError, match=r"text|no prompt"):
        await show(command(), runtime, prompt)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["no program is named"]),
        ({"argv": ("no-such-program",)}, ["no program 'no-such-program' on PATH"]),
        ({"argv": ("./nowhere",)}, ["nowhere' isn't there"]),
        ({"argv": (__file__,)}, ["can't be executed"]),
        ({"argv": ("true", "{api_key}")}, ["OPENAI_API_KEY"]),
        ({"argv": ("true",), "continue_argv": ("true", "{api_key}")}, ["--harness.continue-argv: an argument"]),
        ({"argv": ("true",), "continue_argv": ("no-such-one",)}, ["--harness.continue-argv: there is no program"]),
        ({"argv": ("true",), "continue_argv": ("true", "{promt}")}, ["--harness.continue-argv: nothing is filled in"]),
        ({"argv": ("true", "{promt}"), "files": ("none",)}, ["did you mean {prompt}?", "--harness.files none"]),
        ({"argv": ("true", "{prompt}"), "prompt_via": "stdin"}, ["leave one"]),
        ({"argv": ("true", "{prompt}"), "prompt_via": "file"}, ["use {prompt_file}"]),
        ({"argv": ("true", "{prompt_file}"), "prompt_via": "argument"}, ["use {prompt}"]),
        ({"argv": ("true",), "variables": {"X": "{prompt}"}}, ["--harness.variables.X"]),
        ({"argv": ("true",), "version_argv": ("{model}",)}, ["{model}"]),
    ],
)
def test_mistakes_are_found_before_anything_starts(options: dict[str, Any], words: list[str]) -> None:
    mistakes = [str(mistake) for mistake in Command.model_validate(options).mistakes()]
    assert len(mistakes) == len(words)
    assert all(word in mistake for word, mistake in zip(words, mistakes, strict=True))


def test_program_that_the_setup_makes_is_not_looked_for() -> None:
    assert Command(argv=("{setup_dir}/bin/agent",)).mistakes() == []


def test_secret_among_the_variables_is_not_on_record() -> None:
    harness = Command(argv=("true",), variables={"MY_TOKEN": "sk-1", "A_KEY": "{api_key}", "MODE": "fast"})
    assert harness.record()["variables"] == {"MY_TOKEN": "***", "A_KEY": "{api_key}", "MODE": "fast"}


TOOLS = (
    ToolServer("notes", "http://127.0.0.1:9/mcp?key=secret"),
    ToolServer("books", "https://books.example/mcp", {"Authorization": "Bearer x"}),
)
SERVERS = {
    "notes": {"type": "http", "url": "http://127.0.0.1:9/mcp?key=secret"},
    "books": {"type": "http", "url": "https://books.example/mcp", "headers": {"Authorization": "Bearer x"}},
}


async def test_tool_servers_are_in_a_file_that_is_named_where_one_likes(runtime: SubprocessRuntime) -> None:
    harness = command("--tools={mcp_config}", variables={"MCP_FILE": "{mcp_config}"})
    [argument], _, env = await show(harness, runtime, tools=TOOLS)
    path = Path(argument.removeprefix("--tools="))
    assert env["MCP_FILE"] == str(path)
    assert json.loads(path.read_text()) == {"mcpServers": SERVERS}
    assert path.stat().st_mode & 0o777 == 0o600
    await show(harness, runtime)
    assert json.loads(path.read_text()) == {"mcpServers": {}}


def test_a_program_takes_tools_when_it_is_told_where_they_are() -> None:
    assert not command("{prompt}").accepts_tools()
    assert not command("{{mcp_config}}").accepts_tools()
    assert command("{mcp_config}").accepts_tools()
    assert command(variables={"MCP": "{mcp_config}"}).accepts_tools()
    assert command(continue_argv=("true", "{mcp_config}")).accepts_tools()


class Lines:
    """Says its lines."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    async def respond(self) -> str | None:
        return self.lines.pop(0) if self.lines else None


AGAIN = (sys.executable, "-c", SHOW)


@pytest.mark.parametrize("line", ["more", NASTY])
async def test_what_the_user_says_takes_the_prompts_place(runtime: SubprocessRuntime, line: str) -> None:
    by_stdin = command("{prompt}", continue_argv=AGAIN)
    assert (await show(by_stdin, runtime, user=Lines("first", line)))[:2] == [[], line]
    by_argument = command(continue_argv=(*AGAIN, "--again", "{prompt}"))
    assert (await show(by_argument, runtime, user=Lines(line)))[:2] == [["--again", line], ""]
    [path], text, _ = await show(command(continue_argv=(*AGAIN, "{prompt_file}")), runtime, user=Lines(line))
    assert (text, Path(path).read_text()) == ("", line)
    last = command(continue_argv=AGAIN, prompt_via="argument")
    assert (await show(last, runtime, user=Lines(line)))[0] == [line]


async def test_a_program_that_failed_is_not_gone_on_with(runtime: SubprocessRuntime) -> None:
    user = Lines("more")
    harness = Command(argv=("false",), continue_argv=AGAIN)
    work = Task(prompt="hi")
    endpoint = Endpoint("http://127.0.0.1:1/v1", "secret", "m")
    result = await harness.run(Job(endpoint, work.messages(), work, runtime, user=user))
    assert result is not None
    assert (result.exit_code, user.lines) == (1, ["more"])


def test_a_program_can_go_on_when_it_is_told_how() -> None:
    assert not command().accepts_user()
    assert command(continue_argv=AGAIN).accepts_user()
