import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfx.authoring.verdict import Form, UnreadableError, read_verdict
from vfx.messages import Message, ToolCall

ONE = Form()
TWO = Form(criteria=("clear", "short"))


def read(text: str, form: Form = ONE) -> Any:
    return read_verdict(Message("assistant", text), form)


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 0.8}',
        ' \n{"reasoning": "good", "score": 0.8}\n',
        '```json\n{"score": 0.8}\n```',
        '```\n{"score": 0.8}\n```',
        'I think {it} is fine [1], see [above].\n\n{"score": 0.8}\n\nThat is my verdict.',
        'Considering {a: 1} and [2, 3]: {"reasoning": "it says \\"{\\"", "score": 0.8}.',
        '{"score": 0.8} - so again: {"score": 0.8}',
        '<think>Maybe {"score": 0.1}, or {"sc</think>{"score": 0.8}',
        '{"score": "0.8"}',
        '{"score": " .8 "}',
        '{"score": "8e-1"}',
        '{"other": [{"a": 1}], "score": 0.8}',
    ],
)
def test_a_verdict_is_read(text: str) -> None:
    assert read(text) == {"score": 0.8}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (" \n\t ", "it is empty"),
        ("<think>Well.</think>", "it is empty"),
        ("I can't help with that.", "no JSON object"),
        ("0.8", "no JSON object"),
        ("Score: 0.8/1", "no JSON object"),
        ('{"reasoning": "The answer is', "cut off"),
        ('{"score": 0.', "cut off"),
        ('{"score": 0.8', "cut off"),
        ('```json\n{"score": 0.8', "cut off"),
        ('{"detail": {"score": 0.8}, "reas', "cut off"),
        ("{'score': 0.8}", "broken"),
        ('{"score": 0.8,}', "broken"),
        ('[{"score": 0.8}]', "array"),
        ("[0.8]", "array"),
        ("```\n[0.8]\n```", None),
        ('[{"score": 0.8}, {"sc', "cut off"),
        ('Here: ["score", {"score": 0.8}]', "array"),
        ('{"score": 1.7}', 'its "score" is 1.7, outside of 0 to 1'),
        ('{"score": -0.01}', "outside"),
        ('{"score": "1.7"}', "outside"),
        ('{"score": 1e999}', "outside"),
        ('{"score": 1' + "0" * 300 + "}", "a huge number"),
        ('{"score": 1' + "0" * 5000 + "}", "broken"),
        ('{"score": 0.2} {"score": 0.9}', "2 different JSON objects"),
        ('{"reasoning": "so"} {"score": 0.9}', "2 different JSON objects"),
        ('{"score": 0.2, "score": 0.9}', "a key twice"),
        ("{}", 'no "score"'),
        ('{"Score": 0.8}', 'no "score"'),
        ('{"verdict": {"score": 0.8}}', 'no "score"'),
        ('{"score": null}', "is null"),
        ('{"score": true}', "is true"),
        ('{"score": [0.8]}', "expected a number"),
        ('{"score": "high"}', 'is "high"'),
        ('{"score": "8/10"}', "expected a number"),
        ('{"score": "nan"}', "expected a number"),
        ('{"score": ""}', "expected a number"),
        ('{"score": NaN}', "NaN is no number"),
        ('{"score": -Infinity}', "-Infinity is no number"),
        ('{"a":' * 5000, "broken"),
        ("[" * 5000, "broken"),
    ],
)
def test_what_is_no_verdict_is_refused_with_the_reason(text: str, reason: str | None) -> None:
    with pytest.raises(UnreadableError, match=reason and reason.replace("(", r"\(")):
        read(text)


def test_a_refusal_and_a_tool_call_are_named() -> None:
    with pytest.raises(UnreadableError, match="a refusal: I must not"):
        read_verdict(Message("assistant", None, refusal="I must not"), ONE)
    call = ToolCall("1", "grade", '{"score": 0.8}')
    with pytest.raises(UnreadableError, match="a call of the tool 'grade', without text"):
        read_verdict(Message("assistant", "", tool_calls=(call,)), ONE)


def test_text_beside_a_tool_call_is_read() -> None:
    reply = Message("assistant", '{"score": 1}', tool_calls=(ToolCall("1", "note", "{}"),))
    assert read_verdict(reply, ONE) == {"score": 1.0}


def test_parts_of_content_are_text() -> None:
    parts = ({"type": "text", "text": '{"sco'}, {"type": "text", "text": 're": 1}'})
    assert read_verdict(Message("assistant", parts), ONE) == {"score": 1.0}


def test_criteria_are_all_read() -> None:
    assert read('{"scores": {"clear": 1, "short": "0.5", "extra": 9}}', TWO) == {"clear": 1.0, "short": 0.5}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"score": 0.8}', 'no object "scores"'),
        ('{"scores": [1, 1]}', 'no object "scores"'),
        ('{"scores": {"clear": 1}}', 'no "short"'),
        ('{"scores": {"clear": 1, "short": 2}}', '"short" is 2'),
        ('{"scores": {"clear": 1, "short": 0, "short": 1}}', "a key twice"),
    ],
)
def test_a_criterion_that_is_missing_or_wrong_spoils_the_verdict(text: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(text, TWO)


def test_the_scale_includes_its_ends() -> None:
    form = Form(1, 5)
    assert [read(f'{{"score": {score}}}', form)["score"] for score in (1, 5)] == [1, 5]
    with pytest.raises(UnreadableError, match=r"0\.99, outside of 1 to 5"):
        read('{"score": 0.99}', form)


def test_whole_numbers_are_wanted_where_they_are_asked_for() -> None:
    form = Form(1, 5, is_whole=True)
    assert [read(f'{{"score": {score}}}', form)["score"] for score in ("3", "3.0", '"4"')] == [3, 3, 4]
    with pytest.raises(UnreadableError, match=r"its \"score\" is 2\.5, expected a whole number"):
        read('{"score": 2.5}', form)
    assert form.schema["properties"]["score"] == {"type": "integer", "minimum": 1, "maximum": 5}


def test_the_form_is_told_and_its_schema_allows_nothing_else() -> None:
    assert '"score": NUMBER' in ONE.example
    assert '"scores": {"clear": NUMBER, "short": NUMBER}' in TWO.example
    assert ONE.schema["required"] == ["reasoning", "score"]
    assert TWO.schema["properties"]["scores"]["required"] == ["clear", "short"]


@given(score=st.floats(0, 1), reasoning=st.text(), before=st.text(alphabet="ab {}.\n"), indent=st.none() | st.just(2))
def test_whatever_the_reasoning_says_the_verdict_is_read(
    score: float, reasoning: str, before: str, indent: int | None
) -> None:
    text = json.dumps({"reasoning": reasoning, "score": score}, indent=indent)
    if "{}" not in before.replace(" ", "").replace("\n", ""):
        text = f"{before}. {text}"
    assert read(text) == {"score": score}


@given(score=st.floats(0, 1), reasoning=st.text(), share=st.floats(0, 0.999))
def test_a_verdict_that_is_cut_anywhere_is_no_verdict(score: float, reasoning: str, share: float) -> None:
    text = json.dumps({"score": score, "reasoning": reasoning})
    with pytest.raises(UnreadableError):
        read(text[: int(len(text) * share)])


@given(st.text(alphabet='{}[]":,.0123456789 score\n`'))
def test_any_text_is_a_verdict_within_the_scale_or_unreadable(text: str) -> None:
    with suppress(UnreadableError):
        assert 0 <= read(text)["score"] <= 1
