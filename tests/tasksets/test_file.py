from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from vfx.errors import ConfigError
from vfx.tasksets.file import File, FileTask


def load(path: Path, content: str | bytes, **options: Any) -> list[FileTask]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(File(path=path, **options).load())


def mistake(path: Path, content: str | bytes, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, content, **options)
    return str(caught.value).replace(str(path), path.name)


def test_each_line_of_jsonl_is_a_task(tmp_path: Path) -> None:
    content = (
        '\ufeff{"prompt": "2+2?", "answer": 4, "id": 7, "level": "easy"}\n\n{"prompt": "F\u2028?", "answer": "Paris"}'
    )
    tasks = load(tmp_path / "d.jsonl", content)
    assert [(task.prompt, task.answer, task.id) for task in tasks] == [("2+2?", "4", "7"), ("F\u2028?", "Paris", None)]


def test_each_row_of_csv_is_a_task(tmp_path: Path) -> None:
    content = '\ufeffid,question,answer\r\na,"2+2,\r\nsay?",4\r\nb,F?,Paris\r\n'
    tasks = load(tmp_path / "d.csv", content, prompt_column="question")
    assert [(task.prompt, task.answer, task.id) for task in tasks] == [("2+2,\r\nsay?", "4", "a"), ("F?", "Paris", "b")]
    assert load(tmp_path / "d.tsv", "prompt\tanswer\nx\ty")[0].answer == "y"


def test_a_prompt_may_be_messages_and_hold_lone_surrogates(tmp_path: Path) -> None:
    content = '{"prompt": [{"role": "user", "content": "\\ud835"}], "answer": "\\ud835"}'
    [task] = load(tmp_path / "d.jsonl", content)
    assert task.messages()[0].text == task.answer == "\ud835"
    assert task.key


def test_a_file_is_read_only_as_far_as_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "x", "answer": "y"}\n' * 2 + "broken\n")
    assert len(list(islice(File(path=path).load(), 2))) == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"prompt": "x", "answer": "y"}\n{"prompt": ', "d.jsonl, line 2: expected a JSON object: Expecting value"),
        ('\n["x"]', "d.jsonl, line 2: expected a JSON object, found a list"),
        ("null", "d.jsonl, line 1: expected a JSON object, found null"),
        ('{"promt": "x", "answer": "y"}', "line 1: has no 'prompt' (did you mean promt?; --taskset.prompt-column"),
        (
            '{"prompt": "x", "b": "y"}',
            "line 1: has no 'answer' (it has: prompt, b; --taskset.answer-column names",
        ),
        ('{"prompt": "x", "answer": ["y"]}', "line 1: answer: expected text or a number, found a list"),
        ('{"prompt": "x", "answer": true}', "line 1: answer: expected text or a number, found True"),
        ('{"prompt": 3, "answer": "y"}', "line 1: prompt: expected text or messages, found 3"),
        ('{"prompt": [{"content": "x"}], "answer": "y"}', "line 1: prompt: expected text or a list of messages"),
        ('{"prompt": ["x"], "answer": "y"}', "line 1: prompt: expected text or a list of messages"),
        (b'{"prompt": "\xff", "answer": "y"}', "d.jsonl, line 1: expected UTF-8, found byte 0xff"),
    ],
)
def test_a_bad_line_of_jsonl_is_named(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert expected in mistake(tmp_path / "d.jsonl", content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("prompt,answer\nx,y\nx", "d.csv, line 3: expected 2 columns, found fewer"),
        ('prompt,answer\n"x\nx",y\nx,y,z', "d.csv, line 4: expected 2 columns, found more"),
        ("prompt,answr\nx,y", "d.csv, line 2: has no 'answer' (did you mean answr?"),
        ('prompt,answer\nx,y\n"x,y', "d.csv, line 3: expected CSV: unexpected end of data"),
        (b"prompt,answer\nx,\xff", "expected UTF-8"),
    ],
)
def test_a_bad_row_of_csv_is_named(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert expected in mistake(tmp_path / "d.csv", content)


def test_what_can_not_be_read_is_a_mistake_of_its_option(tmp_path: Path) -> None:
    assert "--taskset.path: expected a file that ends in .jsonl, .csv or .tsv" in mistake(tmp_path / "d.txt", "")
    with pytest.raises(ConfigError, match="can't be read: No such file or directory"):
        list(File(path=tmp_path / "none.jsonl").load())
    assert "answer: expected one number, found 'four'" in mistake(
        tmp_path / "d.jsonl", '{"prompt": "x", "answer": "four"}', match="number"
    )


@pytest.mark.parametrize(
    ("match", "reply", "answer", "expected"),
    [
        ("exact", " paris\n", "Paris", True),
        ("exact", "Paris.", "Paris", False),
        ("contains", "It is PARIS, of course", "Paris", True),
        ("contains", "Parisian", "Paris", False),
        ("contains", "3.14", "3", False),
        ("contains", "It is 3.", "3", True),
        ("contains", "a+b?", "a+b", True),
        ("number", "First 3, so 1,000.50", "1000.5", True),
        ("number", "1000.5 or 3", "1000.5", False),
        ("number", "none", "0", False),
    ],
)
def test_replies_are_compared_as_was_asked(match: Any, reply: str, answer: str, expected: bool) -> None:
    assert FileTask(answer=answer, match=match, case_sensitive=False).matches(reply) is expected


def test_case_can_count() -> None:
    assert not FileTask(answer="Paris", match="exact", case_sensitive=True).matches("paris")
