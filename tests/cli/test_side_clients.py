import json
from pathlib import Path
from typing import Any

import pytest

from vfx.cli.resolve import resolve
from vfx.errors import ConfigError


def told(tmp_path: Path, client: dict[str, Any]) -> list[str]:
    """The mistakes in a file with one judge that has this client."""
    pairs = ", ".join(f"{name} = {json.dumps(value).replace(': ', ' = ')}" for name, value in client.items())
    file = tmp_path / "run.toml"
    file.write_text(f'[[taskset.task.judges]]\ntype = "reference"\nclient = {{ type = "http", {pairs} }}\n')
    with pytest.raises(ConfigError) as caught:
        resolve(["arithmetic", "--client.type", "scripted", "@", str(file)], {})
    return [str(mistake).removeprefix(f"{file}: ") for mistake in caught.value.mistakes]


def test_a_key_in_the_place_of_its_variable_is_a_mistake(tmp_path: Path) -> None:
    (mistake,) = told(tmp_path, {"api_key_var": "sk-abc"})
    assert mistake.startswith("taskset.task.judges[0].client.api_key_var: expected the name of an environment variable")
    assert "sk-abc" not in mistake


def test_what_was_masked_has_to_be_given_again(tmp_path: Path) -> None:
    mistakes = told(tmp_path, {"headers": {"X-Team": "***"}, "base_url": "https://u:***@h/v1"})
    assert [mistake.partition(" was")[0] for mistake in mistakes] == [
        "taskset.task.judges[0].client.headers.X-Team:",
        "taskset.task.judges[0].client.base_url:",
    ]


def test_a_flag_is_named_with_the_place_inside() -> None:
    judges = json.dumps([{"type": "reference", "client": {"type": "http", "api_key_var": "sk-abc"}}])
    with pytest.raises(
        ConfigError, match=r"--taskset\.task\.judges taskset\.task\.judges\[0\]\.client\.api_key_var: exp"
    ):
        resolve(["arithmetic", "--client.type", "scripted", "--taskset.task.judges", judges], {})
    with pytest.raises(ConfigError, match=r"--taskset\.task\.judge-model\.client\.api-key-var"):
        resolve(
            [
                "arithmetic",
                "--client.type",
                "scripted",
                "--taskset.task.judge-model.client.type",
                "http",
                "--taskset.task.judge-model.client.api-key-var",
                "sk-abc",
            ],
            {},
        )
