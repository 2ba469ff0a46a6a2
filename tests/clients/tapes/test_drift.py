import json
import re
from typing import Any

from vfx.clients.tapes.drift import difference


def shown(recorded: Any, asked: Any, *ignore: str) -> list[str]:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (recorded, asked)]
    patterns = [re.compile(pattern) for pattern in ignore]
    return difference(bodies[0], bodies[1], recorded_at=0.0, asked_at=1e9, ignore=patterns).split("\n")


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)], **fields}


def test_the_first_message_that_differs_is_named() -> None:
    assert shown(chat("a", "b", "What is 3 + 4?"), chat("a", "b", "What is 3 + 5?")) == [
        "message 3 (user), content",
        "  recorded: What is 3 + 4?",
        "  asked:    What is 3 + 5?",
    ]


def test_long_texts_are_cut_around_where_they_differ() -> None:
    place, recorded, asked = shown(chat("x" * 500 + "old" + "y" * 500), chat("x" * 500 + "new" + "y" * 500))
    assert place == "message 1 (user), content"
    assert recorded.startswith("  recorded: …" + "x" * 30 + "old")
    assert asked.startswith("  asked:    …" + "x" * 30 + "new")
    assert len(recorded) < 200


def test_a_longer_conversation_is_told_by_its_first_new_message() -> None:
    assert shown(chat("a"), chat("a", "b"))[0] == "message 2"
    assert "none, the conversation has 1 messages" in shown(chat("a"), chat("a", "b"))[1]


def test_settings_are_named() -> None:
    assert shown(chat("a", seed=1), chat("a", seed=2)) == ["seed", "  recorded: 1", "  asked:    2"]
    assert shown(chat("a"), chat("a", seed=2))[1:] == ["  recorded: null", "  asked:    2"]
    assert shown(chat("a", tools=[{"name": "x"}]), chat("a", tools=[{"name": "y"}]))[0] == "tools 1, name"


def test_what_is_masked_or_ignored_is_passed_over() -> None:
    recorded = chat("at 1970-01-01 in /var/vfx-2d8170144f379be9/2c3af759e5a16ee5", "build 1", "old", seed=1)
    asked = chat("at 2001-09-09 in /srv/vfx-bf9156af613f6445/5cd37aede75ddb37", "build 2", "new", seed=2)
    assert shown(recorded, asked, "build [0-9]+", '"seed":[0-9]+')[0] == "message 3 (user), content"
    assert shown({"seed": 1, "z": 1}, {"seed": 2, "z": 2}, '"seed":[0-9]+')[0] == "z"


def test_what_is_no_json_is_shown_all_the_same() -> None:
    assert shown(b"old \xff", b"new \xff")[0] == "the body"
    assert shown({"a": 1}, b"{")[0] == "the body"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in "".join(shown(chat("\x1b[31mred\n"), chat("blue")))
