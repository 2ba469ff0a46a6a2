import pytest

from vfx.cli.options import Arguments, scan
from vfx.cli.schema import Schema
from vfx.runner.config import EvalConfig

SCHEMA = Schema(EvalConfig)


def scanned(*argv: str) -> Arguments:
    return scan(argv, SCHEMA)


def options(*argv: str) -> dict[str, str | None]:
    found = scanned(*argv)
    assert not found.mistakes
    return {option.path: option.value for option in found.options}


@pytest.mark.parametrize("argv", [("-n5",), ("-n=5",), ("-n", "5"), ("--num-tasks", "5"), ("--num-tasks=5",)])
def test_every_way_to_write_a_value(argv: tuple[str, ...]) -> None:
    assert list(options(*argv).values()) == ["5"]


def test_short_options_stand_for_fields() -> None:
    assert options("-m", "x", "-n", "1", "-r", "2", "-c", "3") == {
        "model": "x",
        "num_tasks": "1",
        "num_rollouts": "2",
        "max_concurrent": "3",
    }


def test_a_value_may_be_a_negative_number_or_begin_with_an_at_sign() -> None:
    assert options("--fail-under", "-1.5", "--seed", "-.5", "-m", "@cf/meta/llama") == {
        "fail-under": "-1.5",
        "seed": "-.5",
        "model": "@cf/meta/llama",
    }


def test_what_begins_with_a_dash_is_a_value_only_behind_an_equals_sign() -> None:
    assert options("--name=-x", "--client.headers.X=a=b") == {"name": "-x", "client.headers.X": "a=b"}
    assert options("--name", "--shuffle") == {"name": None, "shuffle": None}


def test_a_boolean_takes_only_true_or_false() -> None:
    found = scanned("--shuffle", "arithmetic")
    assert (found.env, found.options[0].value) == ("arithmetic", None)
    assert options("--shuffle", "false", "--no-shuffle") == {"shuffle": "false", "no-shuffle": None}


def test_files_are_introduced_by_an_at_sign() -> None:
    found = scanned("@", "a.toml", "b.toml", "env", "@c.toml", "-n", "1", "@", "d")
    assert (found.files, found.env) == (["a.toml", "b.toml", "c.toml", "d"], "env")


def test_two_dashes_end_the_options() -> None:
    assert scanned("-n", "1", "--", "-env").env == "-env"


def test_switches_belong_to_the_command() -> None:
    found = scanned("--dry-run", "--json", "--replace", "-h", "--help_all")
    assert found.switches == {"dry-run", "json", "replace", "help", "help-all"}
    assert not found.options


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("a", "b"), "b: unexpected argument (one ENV is expected)"),
        (("a", "b.toml"), "b.toml: unexpected argument (write @ b.toml to read it)"),
        (("@",), "@: expected a file after it (such as @ run.toml)"),
        (("@", "-n", "1"), "@: expected a file after it (such as @ run.toml)"),
        (("-x", "1"), "-x: unknown option (short options are -m, -n, -r, -c and -h)"),
        (("--dry-run=yes",), "--dry-run: takes no value"),
        (("-max-turns", "3"), "-max-turns: long options begin with two dashes (write --max-turns)"),
        (("-model", "m"), "-model: long options begin with two dashes (write --model)"),
    ],
)
def test_mistakes_are_collected(argv: tuple[str, ...], expected: str) -> None:
    assert expected in [str(mistake) for mistake in scanned(*argv).mistakes]


def test_the_value_of_an_option_with_one_dash_is_not_taken_for_the_environment() -> None:
    assert scanned("-max-turns", "3").env is None


@pytest.mark.parametrize("argv", [("--resume", "out/run"), ("--resume=out/run",)])
def test_the_folder_of_a_run_that_goes_on(argv: tuple[str, ...]) -> None:
    found = scanned("-n", "5", *argv)
    assert (found.folder, found.env, found.switches) == ("out/run", None, {"resume"})


@pytest.mark.parametrize("argv", [("--resume",), ("--resume", "-n", "5"), ("--resume=",)])
def test_a_run_that_goes_on_has_to_be_named(argv: tuple[str, ...]) -> None:
    [mistake] = scanned(*argv).mistakes
    assert str(mistake) == "--resume: expected the folder of a run after it"
