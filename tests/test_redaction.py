from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from vfx.redaction import conceal, redact


def test_text_without_secrets_is_left_alone() -> None:
    assert redact("nothing to hide here") == "nothing to hide here"


def test_a_secret_is_masked_wherever_it_stands() -> None:
    conceal("tok-71b2-one")
    assert redact("key=tok-71b2-one, again tok-71b2-one.") == "key=***, again ***."


def test_the_percent_encoded_form_is_masked() -> None:
    conceal("tok/71b2+two")
    assert redact(f"?key={quote('tok/71b2+two', safe='')}") == "?key=***"


def test_the_escaped_form_is_masked() -> None:
    conceal("tok-71b2\nthree")
    assert redact(repr("tok-71b2\nthree")) == "'***'"


def test_a_secret_within_another_leaves_no_rest() -> None:
    conceal("tok-71b2-four", "tok-71b2-four-and-more")
    assert redact("tok-71b2-four-and-more") == "***"


def test_short_and_missing_values_are_not_masked() -> None:
    conceal("abc", "", None)
    assert redact("abcdef") == "abcdef"


@given(st.text(min_size=8).map(lambda text: f"tok-{text}"))
def test_any_text_can_be_a_secret(secret: str) -> None:
    conceal(secret)
    assert secret not in redact(f"before {secret} after")
