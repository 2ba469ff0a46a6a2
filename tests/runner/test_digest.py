import tomllib
from typing import Any

import pytest

from vfx.clients.base import HttpSettings, ScriptedSettings
from vfx.harnesses.chat import Chat
from vfx.messages import Sampling
from vfx.runner.config import EvalConfig, Timeouts
from vfx.runner.digest import OPERATIONAL, differences
from vfx.runner.saved_config import to_toml
from vfx.tasksets.arithmetic import Arithmetic
from vfx.tasksets.reverse_text import ReverseText


def config(**options: Any) -> EvalConfig:
    parts = {"taskset": Arithmetic(id="arithmetic"), "harness": Chat(id="chat"), "model": "m"}
    return EvalConfig.model_validate(parts | options)


def saved(**options: Any) -> dict[str, Any]:
    return tomllib.loads(to_toml(config(**options)))


def wheres(now: EvalConfig, **before: Any) -> list[str]:
    return [mistake.where for mistake in differences(saved(**before), now)]


def test_the_same_configuration_has_no_differences() -> None:
    assert wheres(config()) == []


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"model": "other"}, "--model"),
        ({"seed": 1}, "--seed"),
        ({"shuffle": True}, "--shuffle"),
        ({"include": ("1:3",)}, "--include"),
        ({"max_output_tokens": 10}, "--max-output-tokens"),
        ({"sampling": Sampling(temperature=0.5)}, "--sampling.temperature"),
        ({"sampling": Sampling(extra={"top_k": 4})}, "--sampling.extra.top_k"),
        ({"taskset": Arithmetic(id="arithmetic", digits=3)}, "--taskset.digits"),
        ({"timeout": Timeouts(rollout=5)}, "--timeout.rollout"),
        ({"client": ScriptedSettings(replies=("a",))}, "--client.type"),
    ],
)
def test_what_bears_on_results_is_named(options: dict[str, Any], where: str) -> None:
    assert wheres(config(**options)) == [where]


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrent": 1},
        {"num_tasks": 3, "num_rollouts": 4},
        {"client": HttpSettings(base_url="http://other", headers={"X-Team": "b"}, max_retries=0)},
        {"timeout": Timeouts(total=5, setup=None)},
        {"log_level": "debug", "fail_under": 0.5},
    ],
)
def test_how_a_run_is_carried_out_may_differ(options: dict[str, Any]) -> None:
    assert wheres(config(**options)) == []


def test_another_environment_is_one_difference_and_not_one_for_each_of_its_options() -> None:
    assert wheres(config(taskset=ReverseText(id="reverse-text"))) == ["--taskset.id"]


def test_old_and_new_value_are_shown() -> None:
    [mistake] = differences(saved(max_turns=3), config())
    assert mistake.what == "was 3 when the run began and is unset now"


def test_an_option_that_is_new_since_then_was_at_its_default() -> None:
    before = saved()
    del before["seed"]
    del before["taskset"]["digits"]
    assert differences(before, config()) == []
    assert [mistake.where for mistake in differences(before, config(seed=2))] == ["--seed"]


def test_masked_values_are_equal_whatever_they_hide() -> None:
    now = config(sampling=Sampling(extra={"api_key": "new"}))
    assert wheres(now, sampling=Sampling(extra={"api_key": "old"})) == []


def test_every_operational_option_exists() -> None:
    groups = {name: field.annotation for name, field in EvalConfig.model_fields.items()}
    # Process workers are to come.
    assert {name.partition(".")[0] for name in OPERATIONAL} - {"workers"} <= groups.keys()


def judged(**judge: Any) -> dict[str, Any]:
    """Options with one judge."""
    entry = {"type": "reference", "model": "j", "client": {"type": "http", "base_url": "http://a/v1"}, **judge}
    return {"taskset": Arithmetic.model_validate({"id": "arithmetic", "task": {"judges": [entry]}})}


@pytest.mark.parametrize(
    "client",
    [
        {"type": "http", "base_url": "http://b/v1"},
        {"type": "http", "base_url": "http://a/v1", "api_key_var": "OTHER", "max_retries": 0},
        {"type": "http", "base_url": "http://a/v1", "headers": {"X-Team": "t"}},
    ],
)
def test_where_a_judge_is_reached_may_differ(client: dict[str, Any]) -> None:
    assert wheres(config(**judged(client=client)), **judged()) == []


@pytest.mark.parametrize(
    ("judge", "where"),
    [
        ({"model": "k"}, "--taskset.task.judges[0].model"),
        ({"repeat": 2}, "--taskset.task.judges[0].repeat"),
        ({"sampling": {"temperature": None}}, "--taskset.task.judges[0].sampling.temperature"),
        ({"client": {"type": "scripted"}}, "--taskset.task.judges[0].client.type"),
        ({"name": "other"}, "--taskset.task.judges"),
    ],
)
def test_what_a_judge_asks_may_not_differ(judge: dict[str, Any], where: str) -> None:
    assert where in wheres(config(**judged(**judge)), **judged())


def test_other_judges_are_told_of_once() -> None:
    assert wheres(config(), **judged()) == ["--taskset.task.judges"]
    assert wheres(config(**judged(type="rubric", criteria=[{"name": "c"}])), **judged()) == ["--taskset.task.judges"]


def test_an_option_that_judges_have_got_since_then_was_at_its_default() -> None:
    old = saved(**judged())
    del old["taskset"]["task"]["judges"][0]["structured"]
    assert differences(old, config(**judged())) == []
    assert [mistake.where for mistake in differences(old, config(**judged(structured=True)))] == [
        "--taskset.task.judges[0].structured"
    ]
