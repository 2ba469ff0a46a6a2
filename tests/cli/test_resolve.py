from collections.abc import Mapping
from pathlib import Path

import pytest

from vfx.cli.layers import Precedence
from vfx.cli.resolve import Resolved, resolve
from vfx.clients.base import HttpSettings, LocalSettings, ScriptedSettings
from vfx.errors import ConfigError
from vfx.interception.base import ElasticSettings, ServerSettings, StaticSettings

ENVIRONMENT = """
from typing import Literal

from pydantic import Field, field_validator

import vfx
from vfx.settings import Settings


class Limits(Settings):
    low: int = 0
    high: int = 10


class Small(Settings):
    type: Literal["small"] = "small"


class Large(Settings):
    type: Literal["large"] = "large"
    factor: float = Field(default=2.0, gt=1)


class One(vfx.Taskset):
    path: str
    fast: bool = False
    word: str = "x"
    limits: Limits = Limits(low=5)
    size: Small | Large = Small()

    @field_validator("word")
    @classmethod
    def _not_y(cls, value):
        if value == "y":
            raise ValueError("y is taken")
        if value == "z":
            raise KeyError("z")
        return value

    def load(self):
        yield vfx.Task(prompt="x")
"""


def resolved(*argv: str, environ: Mapping[str, str] | None = None) -> Resolved:
    return resolve(argv, environ or {})


def mistakes(*argv: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve(argv, environ or {})
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.fixture
def env(tmp_path: Path) -> str:
    path = tmp_path / "own_env.py"
    path.write_text(ENVIRONMENT)
    return str(path)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


# Situations


def test_nothing_given_is_the_demo_with_the_embedded_model() -> None:
    found = resolved()
    assert found.is_demo
    assert (found.config.taskset.id, found.config.harness.id) == ("arithmetic", "chat")
    assert isinstance(found.config.client, LocalSettings)
    assert isinstance(found.config.interception, ElasticSettings)


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        (("-m", "x"), {}),
        (("--model=x",), {}),
        (("-m", "x", "--client.max-retries", "1"), {}),
        ((), {"VFX_MODEL": "x"}),
    ],
)
def test_the_demo_runs_on_a_model_that_is_named(argv: tuple[str, ...], environ: Mapping[str, str]) -> None:
    found = resolved(*argv, environ=environ)
    assert found.is_demo
    assert isinstance(found.config.client, HttpSettings)


def test_naming_the_demo_is_not_being_without_an_environment() -> None:
    found = resolved("arithmetic")
    assert not found.is_demo
    assert isinstance(found.config.client, LocalSettings)


@pytest.mark.parametrize("argv", [("reverse-text",), ("--client.max-retries", "1"), ("reverse-text", "-m", "")])
def test_an_endpoint_needs_the_name_of_a_model(argv: tuple[str, ...]) -> None:
    assert mistakes(*argv) == ["-m: no model is named (name a model with -m, such as -m gpt-4.1-mini)"]


def test_clients_with_a_model_of_their_own_need_no_name() -> None:
    assert isinstance(resolved("reverse-text", "--client.type", "scripted").config.client, ScriptedSettings)


def test_switches_are_handed_on() -> None:
    assert resolved("--dry-run", "--json", "--replace").switches == {"dry-run", "json", "replace"}


# Precedence


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("num_tasks = 1\nnum_rollouts = 1\nseed = 1\nmax_concurrent = 1\n")
    (tmp_path / "b.toml").write_text("num_rollouts = 2\nseed = 2\nmax_concurrent = 2\n")
    found = resolved(
        *("@", str(tmp_path / "a.toml"), "@", str(tmp_path / "b.toml"), "-c", "4"),
        environ={"VFX_SEED": "3", "VFX_MAX_CONCURRENT": "3"},
    )
    config = found.config
    assert (config.num_tasks, config.num_rollouts, config.seed, config.max_concurrent) == (1, 2, 3, 4)
    assert [found.sources[name].precedence for name in ("num_tasks", "num_rollouts", "seed", "max_concurrent")] == [
        Precedence.FILE,
        Precedence.FILE,
        Precedence.ENVIRONMENT,
        Precedence.FLAG,
    ]
    assert found.sources["num_rollouts"].name == str(tmp_path / "b.toml")
    assert found.sources["max_concurrent"].name == "-c"
    assert "shuffle" not in found.sources


def test_a_list_replaces_that_of_a_file_and_a_repeated_flag_adds_to_it(toml: Path) -> None:
    toml.write_text('include = ["a"]\n')
    assert resolved("@", str(toml)).config.include == ("a",)
    assert resolved("@", str(toml), "--include", "b", "--include", '["c", "d"]').config.include == ("b", "c", "d")
    assert resolved("@", str(toml), environ={"VFX_INCLUDE": "b"}).config.include == ("b",)


def test_entries_of_a_map_are_merged_key_by_key(toml: Path) -> None:
    toml.write_text('model = "x"\n[client.headers]\nX-Team = "a"\nX-Other = "b"\n')
    client = resolved("@", str(toml), "--client.headers.X-Team", "c", "--client.headers.x_y=d").config.client
    assert isinstance(client, HttpSettings)
    assert client.headers == {"X-Team": "c", "X-Other": "b", "x_y": "d"}


def test_a_default_that_differs_from_its_class_is_kept_below_what_is_given(env: str) -> None:
    config = resolved(env, "-m", "x", "--taskset.path", "p", "--taskset.limits.high", "9").config
    assert config.taskset.model_dump()["limits"] == {"low": 5, "high": 9}


def test_none_unsets_an_option_that_is_no_text(toml: Path) -> None:
    toml.write_text('[timeout]\nsetup = "none"\n')
    found = resolved("@", str(toml), "--timeout.finalize", "none", "--name", "none").config
    assert (found.timeout.setup, found.timeout.finalize, found.name) == (None, None, "none")


def test_text_is_not_reinterpreted() -> None:
    found = resolved("-m", "007", "--sampling.extra.top_k", "40", "--sampling.extra.name", "a", "--seed", "-1").config
    assert (found.model, found.sampling.extra, found.seed) == ("007", {"top_k": 40, "name": "a"}, -1)


def test_names_in_files_may_have_dashes(toml: Path) -> None:
    toml.write_text("num-tasks = 3\n")
    assert resolved("@", str(toml)).config.num_tasks == 3


def test_variables_that_are_no_options_are_left_alone() -> None:
    assert resolved(environ={"VFX_DATA_DIR": "/x", "VFX_SOMETHING": "1", "OTHER": "1"}).is_demo


# Narrowing


def test_an_interception_is_chosen_by_its_type() -> None:
    assert isinstance(resolved("--interception.type", "server").config.interception, ServerSettings)
    static = resolved("--interception.type", "static", "--interception.servers", "[{}, {}]").config.interception
    assert isinstance(static, StaticSettings)
    assert len(static.servers) == 2


def test_options_of_the_named_environment_are_known(env: str) -> None:
    config = resolved(env, "-m", "x", "--taskset.path", "p", "--taskset.size.type", "large").config
    assert config.taskset.model_dump()["size"] == {"type": "large", "factor": 2.0}
    assert config.taskset.id == env


def test_a_boolean_of_the_named_environment_takes_no_value(env: str) -> None:
    config = resolved("-m", "x", "--taskset.id", env, "--taskset.path", "p", "--taskset.fast").config
    assert config.taskset.model_dump()["fast"] is True
    assert mistakes("--taskset.fast", "other", env, "-m", "x", "--taskset.path", "p") == [
        f"{env}: unexpected argument (one ENV is expected)",
        "ENV: no taskset is called 'other'; expected an id, the path of a .py file or folder, or module:Class"
        " (known: arithmetic, file, guess-number, reverse-text, search)",
    ]


def test_an_option_of_another_variant_says_what_it_goes_with(toml: Path) -> None:
    toml.write_text('[client]\ntype = "http"\nbase_url = "http://localhost/v1"\n')
    assert mistakes("@", str(toml), "--client.type", "local") == [
        f"{toml}: client.base_url: unknown option of client local"
        " (it goes with client.type http; local was chosen by --client.type)"
    ]


def test_an_unknown_variant_is_one_mistake() -> None:
    assert mistakes("--client.type", "htpp", "--client.slots", "2") == [
        '--client.type: expected one of http, local, scripted, found text "htpp"; did you mean http?'
    ]


# Mistakes


def test_all_mistakes_of_a_file_are_told_at_once(toml: Path) -> None:
    toml.write_text('modle = "m"\nbase_url = "http://x"\nnum_tasks = "5"\n[taskset]\nid = "reverse-text"\n'
                    '[sampling]\ntemprature = 1\n[client]\napi_key_var = "none"\n')  # fmt: skip
    assert mistakes("@", str(toml)) == [
        f"{toml}: modle: unknown option (did you mean model?)",
        f"{toml}: base_url: unknown option (did you mean client.base_url?)",
        f'{toml}: num_tasks: expected a whole number or none, found text "5"',
        f"{toml}: sampling.temprature: unknown option (did you mean sampling.temperature?)",
        "-m: no model is named (name a model with -m, such as -m gpt-4.1-mini)",
    ]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--client.base-ulr", "x"), "unknown option of client http (did you mean --client.base-url?)"),
        (("--modle", "x"), "--modle: unknown option (did you mean --model?)"),
        (("--taskset.sise", "1"), "unknown option of taskset arithmetic (did you mean --taskset.size?)"),
        (("--harness.rumtime.type", "x"), "unknown option of harness chat (did you mean --harness.runtime.type?)"),
        (("-n", "0"), "-n: expected at least 1, got 0"),
        (("-r", "-2"), "-r: expected at least 1, got -2"),
        (("--max-concurrent=0",), "--max-concurrent: expected at least 1, got 0"),
        (("--sampling.top-p", "2"), "--sampling.top-p: expected at most 1, got 2"),
        (("--timeout.total", "0"), "--timeout.total: expected more than 0, got 0"),
        (("--name", ""), "--name: expected at least 1 character, got 0"),
        (("--interception.type", "static", "--interception.servers", "[]"), "expected at least 1 entry, got 0"),
        (("-n", "five"), '-n: expected a whole number or none, found text "five"'),
        (("-n",), "-n: expected a whole number or none after it"),
        (("--client", "http"), "--client: is a group of options (give them one by one, as --client.NAME VALUE)"),
        (("--no-shuffle=true",), "--no-shuffle: takes no value (write --shuffle true)"),
        (("--sampling..x", "1"), "--sampling..x: unknown option"),
        (("arithmetik",), "ENV: no taskset is called 'arithmetik'"),
        (("--harness.id", "chta"), "--harness.id: no harness is called 'chta'"),
        (("",), "ENV: expected an id, the path of a .py file or folder, or module:Class, found nothing"),
        (("-n", "1" * 5000), "-n: expected a whole number or none, found text"),
        (("run.toml",), "ENV: run.toml is no environment (write @ run.toml to read its options)"),
        (("arithmetic", "--taskset.id", "reverse-text"), "names another environment than ENV (give one of them)"),
        (("@", "no-such.toml"), "@ no-such.toml: can't be read: No such file or directory"),
        (("--retries.on", "provider,tunnel"), "repeat --retries.on for each"),
        (
            ("--client.api-key-var", "sk-abc-123"),
            "expected the name of an environment variable; a key itself is not taken",
        ),
    ],
)
def test_a_mistake_on_the_command_line(argv: tuple[str, ...], expected: str) -> None:
    found = mistakes(*argv)
    assert any(expected in mistake for mistake in found), found
    assert len([mistake for mistake in found if not mistake.startswith("-m: no model")]) == 1, found


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"VFX_NUM_TASK": "1"}, "VFX_NUM_TASK: unknown option (did you mean VFX_NUM_TASKS?)"),
        ({"VFX_SAMPLING__TEMP": "1"}, "VFX_SAMPLING__TEMP: unknown option"),
        ({"VFX_NUM_TASKS": "x"}, 'VFX_NUM_TASKS: expected a whole number or none, found text "x"'),
        ({"VFX_SAMPLING__TOP_P": "3"}, "VFX_SAMPLING__TOP_P: expected at most 1, got 3"),
    ],
)
def test_a_mistake_in_the_environment(environ: Mapping[str, str], expected: str) -> None:
    assert mistakes(environ=environ)[0].startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"num_tasks = \n", "is not valid TOML: Invalid value (at line 1, column 13)"),
        (b"model = '\xff'\n", "is not UTF-8: byte 9 is 0xff"),
        (b"dry_run = true\n", "dry_run: unknown option (--dry-run is for the command line only)"),
        (b"client = 'http'\n", 'client: expected a table, found text "http"'),
        (b"[clinet]\na = 1\nb = 2\n", "clinet: unknown option (did you mean client?)"),
        (b"include = ['a', 1]\n", "include[1]: expected text, found the whole number 1"),
        (b"num_tasks = 0\n", "num_tasks: expected at least 1, got 0"),
        (b"shuffle = 1\n", "shuffle: expected true or false, found the whole number 1"),
        (b"taskset.id = 5\n", "taskset.id: expected text, found the whole number 5"),
        (b"taskset.id = 'arithmetik'\n", "taskset.id: no taskset is called 'arithmetik'"),
        (b"sampling.extra.day = 2020-01-01\n", "sampling.extra.day: expected text, a number"),
        (
            b"model = 'm'\n[client]\nheaders.X = '***'\n",
            "client.headers.X: was masked when it was saved (give it again with",
        ),
    ],
)
def test_a_mistake_in_a_file(toml: Path, content: bytes, expected: str) -> None:
    toml.write_bytes(content)
    found = mistakes("@", str(toml))
    assert found[0].startswith(f"{toml}: {expected}")
    assert len([mistake for mistake in found if not mistake.startswith("-m")]) == 1, found


def test_values_of_secret_options_are_not_repeated(toml: Path) -> None:
    toml.write_text('model = "m"\n[client.headers]\nAuthorization = ["hidden-value"]\n')
    text = "\n".join(
        mistakes("@", str(toml), "--clinet.headers.X", "hidden-value", "--client.api-key-var", "sk-hidden")
    )
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "--taskset.path: is required"),
        (("--taskset.path", "p", "--taskset.word", "y"), "--taskset.word: y is taken"),
        (("--taskset.path", "p", "--taskset.word", "z"), "taskset: can't be configured: KeyError: 'z'"),
        (
            ("--taskset.path", "p", "--taskset.limits.low", "x"),
            "--taskset.limits.low: expected a whole number, found text",
        ),
        (
            ("--taskset.path", "p", "--taskset.size.type", "large", "--taskset.size.factor", "1"),
            "--taskset.size.factor: expected more than 1, got 1",
        ),
        (("--taskset.path", "p", "--taskset.size.factor", "3"), "it goes with taskset.size.type large"),
        (
            ("--taskset.path", "p", "--taskset.system-prompt", "a", "--taskset.system-prompt-file", "b"),
            "--taskset: system_prompt and system_prompt_file: give one of them",
        ),
    ],
)
def test_a_mistake_in_the_options_of_an_environment(env: str, argv: tuple[str, ...], expected: str) -> None:
    found = mistakes(env, "-m", "x", *argv)
    assert len(found) == 1
    assert expected in found[0]


def test_a_required_option_that_is_wrong_is_not_also_missing(env: str, toml: Path) -> None:
    toml.write_text("[taskset]\npath = 5\n")
    assert mistakes(env, "-m", "x", "@", str(toml)) == [
        f"{toml}: taskset.path: expected text, found the whole number 5"
    ]


def test_options_of_an_environment_that_does_not_exist_are_not_judged() -> None:
    found = mistakes("arithmetik", "--taskset.anything", "1", "-n", "0", "-m", "x")
    assert [mistake.partition(":")[0] for mistake in found] == ["ENV", "-n"]


def test_an_environment_that_ends_the_program_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(0)")
    assert "it calls sys.exit(0)" in mistakes(str(tmp_path / "ends.py"), "-m", "x")[0]


def test_neighbours_of_a_mistake_are_still_checked(toml: Path) -> None:
    toml.write_text('num_tasks = "x"\nnum_rollouts = 0\n[timeout]\nsetup = -1\n')
    assert len(mistakes("@", str(toml), "-c", "0")) == 4
