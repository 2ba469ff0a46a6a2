import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from vfx.authoring.harness import Endpoint, Job
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


async def show(harness: Command, runtime: SubprocessRuntime, prompt: Any = "hi", **task: Any) -> Any:
    """The arguments, the input and the variables that the program finds."""
    endpoint = Endpoint("http://127.0.0.1:1/v1", "secret", "m")
    work = Task(prompt=prompt, **task)
    async with harness.serving():
        result = await harness.run(Job(endpoint, work.messages(), work, runtime))
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
