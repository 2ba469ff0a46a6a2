import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.clients.base import HttpSettings
from vfx.harnesses.chat import Chat
from vfx.messages import Sampling
from vfx.runner.config import EvalConfig, Timeouts
from vfx.runner.saved_config import masked_config, to_toml
from vfx.tasksets.arithmetic import Arithmetic


def config(client: HttpSettings | None = None, sampling: Sampling | None = None, **options: object) -> EvalConfig:
    return EvalConfig(
        taskset=Arithmetic(id="arithmetic"),
        harness=Chat(id="chat"),
        client=client or HttpSettings(),
        sampling=sampling or Sampling(),
        **options,  # pyright: ignore[reportArgumentType]
    )


def test_literal_headers_are_masked_and_names_of_variables_are_kept() -> None:
    headers = {"Authorization": "Bearer abc", "X-Team": "env:TEAM"}
    assert masked_config(config(HttpSettings(headers=headers)))["client"]["headers"] == {
        "Authorization": "***",
        "X-Team": "env:TEAM",
    }


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://host/v1", "https://host/v1"),
        ("https://user:pass@host:1/v1?key=abc&b=", "https://user:***@host:1/v1?key=***&b="),
        ("https://token@host/v1", "https://***@host/v1"),
        ("https://host/v1?abc", "https://host/v1?abc=***"),
        ("http://[", "***"),
    ],
)
def test_credentials_in_a_url_are_masked(url: str, masked: str) -> None:
    assert masked_config(config(HttpSettings(base_url=url)))["client"]["base_url"] == masked


def judged(**judge: object) -> EvalConfig:
    entry = {"type": "reference", **judge}
    return EvalConfig(
        taskset=Arithmetic.model_validate({"id": "arithmetic", "task": {"judges": [entry]}}), harness=Chat(id="chat")
    )


def test_secrets_of_a_judge_s_client_are_masked() -> None:
    client = {"type": "http", "base_url": "https://u:p@h/v1?sig=a", "headers": {"X": "abc", "Y": "env:Y"}}
    shown = masked_config(judged(client=client))["taskset"]["task"]["judges"][0]["client"]
    assert shown["base_url"] == "https://u:***@h/v1?sig=***"
    assert shown["headers"] == {"X": "***", "Y": "env:Y"}


def test_what_a_judge_has_set_to_none_reads_back() -> None:
    (judge,) = tomllib.loads(to_toml(judged(sampling={"temperature": None})))["taskset"]["task"]["judges"]
    assert judge["sampling"]["temperature"] == "none"
    assert "model" not in judge


def test_secrets_in_open_options_are_masked_and_harmless_values_kept() -> None:
    extra = {"api_key": "abc", "stop_token": "</s>", "url": "https://u:p@h/?token=a&split=test", "n": 1}
    assert masked_config(config(sampling=Sampling(extra=extra)))["sampling"]["extra"] == {
        "api_key": "***",
        "stop_token": "</s>",
        "url": "https://u:***@h/?token=***&split=test",
        "n": 1,
    }


def test_what_is_set_to_none_is_written_and_what_is_unset_by_default_is_not() -> None:
    saved = tomllib.loads(to_toml(config(timeout=Timeouts(setup=None))))
    assert saved["timeout"]["setup"] == "none"
    assert "rollout" not in saved["timeout"]


def test_options_of_the_environment_are_saved() -> None:
    assert tomllib.loads(to_toml(config()))["taskset"] == {
        "id": "arithmetic",
        "digits": 1,
        "size": 20,
        "task_seed": 0,
        "task": {"judges": []},
    }


values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "://" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c", "é", ""]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab.\"'\\ é\n\x7f", max_size=4), values, max_size=4))
def test_every_value_reads_back_as_it_was(extra: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(config(sampling=Sampling(extra=extra)))).get("sampling", {}).get("extra", {}) == extra


def test_infinity_has_a_form_in_toml() -> None:
    saved = tomllib.loads(to_toml(config(timeout=Timeouts(total=math.inf))))
    assert saved["timeout"]["total"] == math.inf


def test_a_lone_surrogate_does_not_keep_a_run_from_being_saved() -> None:
    assert tomllib.loads(to_toml(config(model="a\ud835b")))["model"] == "a?b"
