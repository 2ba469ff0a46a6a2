import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.command import read_lines, run_dir, vfx
from vfx.tasksets.search import Archive, Search, town

pytestmark = pytest.mark.anyio


async def test_the_archive_finds_a_town_among_ten_thousand_and_reads_it() -> None:
    archive = Archive(documents=10_000)
    await archive.start()
    asked = town(7_000)
    [found, *_] = archive.search(f"when was {asked.name} founded?")
    assert found == {"document": 7_000, "title": asked.name}
    assert str(asked.founded) in archive.read(7_000)
    with pytest.raises(LookupError, match="numbered from 0 to 9999"):
        archive.read(10_000)


def test_towns_have_names_of_their_own() -> None:
    assert len({town(number).name for number in range(10_000)}) == 10_000


def test_there_are_not_more_questions_than_documents() -> None:
    with pytest.raises(ValidationError, match="there are 10 documents, which is less than questions 11"):
        Search.model_validate({"questions": 11, "tools": {"archive": {"documents": 10}}})


async def test_a_question_is_answered_with_tools(tmp_path: Path) -> None:
    asked = town(0)
    replies = [
        {"tool": "search", "arguments": {"query": asked.name}},
        {"tool": "read", "arguments": {"document": 0}},
        {"tool": "note", "arguments": {"text": "read it"}},
        f"It was founded in {asked.founded}.",
    ]
    texts = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    script = ("--client.type", "scripted", "--client.replies", json.dumps(texts))
    done = await vfx("eval", "search", "-n", "1", *script, cwd=tmp_path)
    assert done.code == 0, done.stderr
    [record] = read_lines(run_dir(tmp_path) / "traces.jsonl")
    assert (record["reward"], record["metrics"]) == (1.0, {"tool_results": 3.0})
    results = [node["message"]["content"] for node in record["nodes"] if node["message"]["role"] == "tool"]
    assert results[1:] == [asked.text, "1 notes"]
