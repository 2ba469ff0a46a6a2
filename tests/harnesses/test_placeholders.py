from vfx.harnesses.placeholders import fill, used_names, wrong_names


def test_names_are_filled_in_and_other_braces_stay() -> None:
    text = '{"a": {"b": 1}} {model} {{model}} {other} {}'
    assert fill(text, {"model": "m"}) == '{"a": {"b": 1}} m {model} {other} {}'


def test_what_is_filled_in_is_not_filled_in_again() -> None:
    assert fill("{prompt}", {"prompt": "{model} \\1", "model": "m"}) == "{model} \\1"


def test_used_names_are_those_in_single_braces() -> None:
    assert used_names("{a}{{b}} {c_d} { e }") == {"a", "c_d"}


def test_unknown_name_gets_the_nearest_known() -> None:
    [mistake] = wrong_names("{promt} {model}", {"prompt", "model"}, "--x")
    assert "did you mean {prompt}?" in str(mistake)
    assert not wrong_names("{{promt}}", {"prompt"}, "--x")
