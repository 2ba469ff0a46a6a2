from pathlib import Path

import pytest

from vfx.cli.resolve import resolve
from vfx.errors import ConfigError

JUDGES = """
[[taskset.task.judges]]
type = "rubric"
prompt = "Is {rely} right?"
criteria = [{ name = "", weight = 0 }]
scale = [1, 0]
client = { type = "http", max_retries = -1 }

[[taskset.task.judges]]
type = "reference"
sampling = { temperature = -1 }
"""


def test_what_is_wrong_inside_a_list_of_variants_is_told_with_the_path_that_users_know(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(JUDGES)
    with pytest.raises(ConfigError) as caught:
        resolve(["arithmetic", "--client.type", "scripted", "@", str(file)], {})
    told = [str(mistake).removeprefix(f"{file}: taskset.task.") for mistake in caught.value.mistakes]
    assert sorted(told) == [
        "judges[0].client.max_retries: expected at least 0, got -1",
        "judges[0].criteria[0].name: expected at least 1 character, got 0",
        "judges[0].criteria[0].weight: expected more than 0, got 0",
        "judges[0].prompt: {rely} is no placeholder: there are {question}, {reply}, {answer}, {criteria}, "
        "{transcript}, {low}, {high}; write {{rely}} for the text itself",
        "judges[0].scale: expected two numbers, the lower one first, got 1 and 0",
        "judges[1].sampling.temperature: expected at least 0, got -1",
    ]
