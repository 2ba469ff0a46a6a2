import pytest
from pydantic import Field

from vfx.cli.schema import Schema
from vfx.runner.config import EvalConfig
from vfx.settings import Settings
from vfx.tasksets.arithmetic import Arithmetic

SCHEMA = Schema(EvalConfig)


def names(schema: Schema) -> set[str]:
    return {".".join(field.path) for field in schema.walk()}


def test_dashes_and_underscores_are_the_same_in_names_of_fields() -> None:
    place = SCHEMA.locate(["client", "base-url"])
    assert place is not None
    assert place.path == ("client", "base_url")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["client", "headers", "X-Team"], ("client", "headers", "X-Team")),
        (["sampling", "extra", "top_k"], ("sampling", "extra", "top_k")),
        (["sampling", "extra", "a", "b"], ("sampling", "extra", "a.b")),
    ],
)
def test_keys_of_open_maps_are_literal(words: list[str], path: tuple[str, ...]) -> None:
    place = SCHEMA.locate(words)
    assert place is not None
    assert place.path == path


def test_a_boolean_has_a_negative_form() -> None:
    place = SCHEMA.locate(["no-shuffle"])
    assert place is not None
    assert (place.path, place.is_negated) == (("shuffle",), True)
    assert SCHEMA.locate(["no-seed"]) is None


def test_what_does_not_exist_leads_nowhere() -> None:
    for name in ("modle", "num_tasks.x", "client.nothing"):
        assert SCHEMA.locate(name.split(".")) is None


def test_a_chosen_variant_narrows_the_options() -> None:
    local = Schema(EvalConfig, lambda path, tag: "local" if path == ("client",) else None)
    assert "client.slots" in names(local)
    assert "client.base_url" not in names(local)
    assert "client.base_url" in names(SCHEMA)


def test_a_named_class_stands_in_for_the_declared_one() -> None:
    assert "taskset.digits" in names(Schema(EvalConfig, models={("taskset",): ("arithmetic", Arithmetic)}))


def test_nothing_can_be_said_below_a_choice_that_does_not_exist() -> None:
    unsure = Schema(EvalConfig, lambda path, tag: "htpp" if path == ("client",) else None)
    assert not unsure.certain(["client"])
    assert SCHEMA.certain(["client"])


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("modle", "model"),
        ("base_url", "client.base_url"),
        ("base-ulr", "client.base_url"),
        ("sampling.temprature", "sampling.temperature"),
        ("temperature", "sampling.temperature"),
        ("clinet.type", "client.type"),
        ("clinet", "client"),
        ("timeout.rolout", "timeout.rollout"),
        ("num-task", "num_tasks"),
    ],
)
def test_the_nearest_name_is_found_at_any_level(words: str, near: str) -> None:
    assert SCHEMA.nearest(words.split(".")) == (near, "")


def test_a_name_of_another_variant_is_found_with_its_choice() -> None:
    assert SCHEMA.nearest(["client", "slots"]) == ("client.slots", "client.type local")


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    assert SCHEMA.nearest(["xyzzy"]) is None


class Small(Settings):
    size: int = 1


class Nested(Settings):
    parts: dict[str, Small] = Field(default_factory=dict)


def test_a_map_of_groups_has_options_below_each_key() -> None:
    place = Schema(Nested).locate(["parts", "My-Part", "size"])
    assert place is not None
    assert (place.path, place.kind.name) == (("parts", "My-Part", "size"), "whole number")
