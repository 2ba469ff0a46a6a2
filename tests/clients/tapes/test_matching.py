import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from vfx.clients.tapes.matching import forms, mask, mask_times, translation

AT = datetime(2026, 11, 29, 17, 20, tzinfo=UTC).timestamp()
OLD = "/tmp/vfx-2d8170144f379be9/2c3af759e5a16ee5"  # noqa: S108
NEW = "/var/folders/x1/vfx-bf9156af613f6445/5cd37aede75ddb37"
UUIDS = ("01a22852-ccae-7d82-9d0a-407218816bc1", "3f2f0155-ec16-4f0f-b9d1-24a1cc4db375")


def request(text: str = "", **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}).encode()


def keys(body: bytes, at: float = AT, *ignore: str) -> list[str]:
    """Of a body with its times as they are, and with today's masked."""
    found = forms("POST", "x", body, at, [re.compile(pattern) for pattern in ignore])
    assert found
    return [form.key for form in found]


def is_same(left: str, right: str) -> bool:
    """Whether two texts ask the same, times as they are."""
    return keys(request(left))[0] == keys(request(right))[0]


def both(text: str) -> tuple[str, str]:
    """A text as two rollouts would write it."""
    return text.replace("DIR", OLD).replace("UUID", UUIDS[0]), text.replace("DIR", NEW).replace("UUID", UUIDS[1])


@pytest.mark.parametrize(
    "text",
    [
        "<cwd>DIR</cwd>",
        "cat DIR/add.py\nDIR\n",
        "file://DIR/x",
        '{"cmd":"ls DIR/.codex-home/skills"}',
        "session UUID, message msg_UUID",
        "projects/-tmp-vfx-0000000000000000-1111111111111111/memory",
    ],
)
def test_folders_and_ids_of_a_rollout_are_no_difference(text: str) -> None:
    assert is_same(*both(text))


def test_a_folder_with_dashes_for_slashes_is_the_same_folder() -> None:
    dashed = "DIR/.claude-home/projects/-tmp-vfx-2d8170144f379be9-2c3af759e5a16ee5/memory"
    other = dashed.replace("2d8170144f379be9-2c3af759e5a16ee5", "bf9156af613f6445-5cd37aede75ddb37")
    assert is_same(dashed.replace("DIR", OLD), other.replace("DIR", NEW))
    assert not is_same(dashed.replace("DIR", OLD), other.replace("DIR", OLD))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("What is 3 + 4?", "What is 3 + 5?"),
        ("17.25 s", "17.26 s"),
        ("in 3.5 seconds", "in 4.5 seconds"),
        ("0a1b2c3d", "0a1b2c3e"),
        ("port 8080", "port 8081"),
        ("1795973788", "1795973789"),
        ("days from 2024-02-03 to 2026-11-29", "days from 2024-02-04 to 2026-11-29"),
        (f"{OLD}/a.py", f"{NEW}/b.py"),
        (f"{OLD} {OLD}", f"{NEW} {OLD}"),
        (f"{UUIDS[0]}: 1, {UUIDS[1]}: 2, tell {UUIDS[0]}", f"{UUIDS[0]}: 1, {UUIDS[1]}: 2, tell {UUIDS[1]}"),
    ],
)
def test_what_a_question_is_about_is_a_difference(left: str, right: str) -> None:
    assert not is_same(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("What is 3 + 4?", "What is 3 + 5?"),
        ("days from 2024-02-03", "days from 2024-02-04"),
        ("born 5 May 1991", "born 6 May 1991"),
        ("at 14:05:00", "at 14:06:00"),
        ("1234567890123", "1234567890124"),
    ],
)
def test_other_days_and_numbers_are_a_difference_even_with_times_masked(left: str, right: str) -> None:
    assert keys(request(left))[1] != keys(request(right))[1]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29",
        "2026-11-28T23:59:59.123456Z",
        "2026-11-30 00:10:00+01:00",
        "2026/11/29 17:20:01",
        "11/29/2026",
        "20261129-172000",
        "Nov 29 17:20",
        "Sun Nov 29 17:20:12 UTC 2026",
        "Sunday, November 29, 2026",
        "Sun, 29 Nov 2026 17:20:12 GMT",
        "November 29, 2026",
        "1795972800",
        "1795972812.25",
        "1795972812345",
    ],
)
def test_the_time_of_asking_is_masked(text: str) -> None:
    assert mask_times(f"it is {text}.", AT) == "it is <time>."
    assert mask_times(f"\\n{text}\\n", AT) == "\\n<time>\\n"


@pytest.mark.parametrize(
    "text", ["2026-11-27", "2026-12-29", "29 + 11", "3.1795972800", "111795972800", "Nov 2 17:20", "2026-11-290", "29"]
)
def test_other_times_and_numbers_are_not_masked(text: str) -> None:
    assert mask_times(text, AT) == text


def test_a_request_of_another_day_is_the_same_but_for_its_date() -> None:
    today, later = request("now 2026-11-29"), request("now 2027-03-01")
    asked = datetime(2027, 3, 1, 8, tzinfo=UTC).timestamp()
    assert keys(today)[0] != keys(later, asked)[0]
    assert keys(today)[1] == keys(later, asked)[1]


@pytest.mark.parametrize(
    "name", ["prompt_cache_key", "metadata", "user", "safety_identifier", "client_metadata", "session_id"]
)
def test_who_asks_is_no_difference(name: str) -> None:
    bodies = [json.dumps({"model": "m", **more}).encode() for more in ({}, {name: "a"}, {name: {"b": 1}})]
    assert keys(bodies[0]) == keys(bodies[1]) == keys(bodies[2])


def test_the_order_of_names_and_the_spelling_of_json_are_no_difference() -> None:
    assert keys(b'{"a":1,"b":"\\u00fc"}') == keys('{ "b": "ü", "a": 1 }'.encode())
    assert keys(b'{"a":1}') != keys(b'{"a":1.0}') != keys(b'{"a":true}')


def conversation(call: str, of: str | None = None, **more: Any) -> bytes:
    return request(
        messages=[
            {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": {"name": "f", **more}}]},
            {"role": "tool", "tool_call_id": of or call, "content": "x"},
        ]
    )


def test_ids_of_tool_calls_are_no_difference_but_what_they_belong_to_is() -> None:
    assert keys(conversation("call_1")) == keys(conversation("call_2"))
    assert keys(conversation("call_1", "call_9")) != keys(conversation("call_1"))


def test_an_id_within_the_arguments_of_a_tool_is_a_difference() -> None:
    def anthropic(number: str) -> bytes:
        block = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"id": number}}
        return request(messages=[{"role": "assistant", "content": [block]}])

    assert keys(anthropic("41")) != keys(anthropic("42"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Chunk ID: eef1ff\nWall time: 0.0512 seconds\nOutput:", "Chunk ID: 0126ae\nWall time: 1.2 seconds\nOutput:"),
        ("===== 3 passed, 1 warning in 0.12s =====", "===== 3 passed, 1 warning in 0.35s ====="),
        ("Ran 3 tests in 0.001s\n\nOK", "Ran 3 tests in 0.004s\n\nOK"),
        ("real\t0m0.003s\nuser\t0m0.001s\nsys\t0m0.002s", "real\t0m1.003s\nuser\t0m0.101s\nsys\t0m0.012s"),
        ("http://127.0.0.1:41234/v1", "http://127.0.0.1:50001/v1"),
        ("OPENAI_API_KEY=Zm9vYmFyYmF6cXV4Zm9vYmFy1", "OPENAI_API_KEY=Zm9vYmFyYmF6cXV4Zm9vYmFy2"),
        ("open /tmp/tmpab12cd_x/f", "open /tmp/tmpzz99yy_q/f"),
        ("in /var/pytest-of-root/pytest-12/test_a0", "in /var/pytest-of-me/pytest-7/test_a0"),
    ],
)
def test_what_tools_measure_and_name_by_chance_is_no_difference(left: str, right: str) -> None:
    assert is_same(left, right)


def test_what_the_user_ignores_is_no_difference() -> None:
    left, right = request("build 17 of x", seed=1), request("build 18 of x", seed=2)
    assert keys(left, AT, "build [0-9]+", '"seed":[0-9]+') == keys(right, AT, "build [0-9]+", '"seed":[0-9]+')
    assert keys(left, AT, "build [0-9]+") != keys(right, AT, "build [0-9]+")


def test_what_is_no_json_has_no_form() -> None:
    assert forms("POST", "x", b"\xff{", AT) is None
    assert forms("POST", "x", b"[" * 100_000, AT) is None
    assert forms("GET", "models", b"", AT) is not None


def test_lone_surrogates_have_a_form() -> None:
    assert keys(b'{"a":"\\ud800"}') != keys(b'{"a":"\\ud801"}')


def test_method_and_path_belong_to_the_question() -> None:
    body = request("x")
    made = [forms(method, path, body, AT) for method, path in (("POST", "a"), ("POST", "b"), ("GET", "a"))]
    assert len({form[0].key for form in made if form}) == 3


def test_names_are_translated_by_where_they_stand() -> None:
    left, right = both("DIR/a UUID DIR")
    found = [mask({"messages": [{"content": text}]})[1] for text in (left, right)]
    assert translation(*found) == {OLD: NEW, UUIDS[0]: UUIDS[1]}
    assert translation(found[0], found[0]) == {}
    assert translation(found[0], ()) == {}


def codex(folder: str, uuid: str, chunk: str, day: str) -> bytes:
    """A second turn as codex sends it, cut down to what differs from run to run."""
    seconds = f"0.0{len(chunk)}1"
    output = f"Chunk ID: {chunk}\nWall time: {seconds} seconds\nProcess exited with code 0\nOutput:\n{folder}/add.py"
    context = f"<cwd>{folder}</cwd>\n<current_date>{day}</current_date><root>{folder}</root>"
    body: dict[str, Any] = {
        "model": "m",
        "input": [
            {
                "type": "message",
                "id": f"msg_{uuid}",
                "role": "user",
                "content": [{"type": "input_text", "text": context}],
            },
            {"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
            {"type": "function_call_output", "id": f"fco_{uuid}", "call_id": "call_1", "output": output},
        ],
        "prompt_cache_key": uuid,
        "client_metadata": {"turn_id": uuid, "x-codex-turn-metadata": f'{{"session_id":"{uuid}"}}'},
    }
    return json.dumps(body).encode()


def claude(folder: str, uuid: str, device: str, day: str) -> bytes:
    """A turn as Claude Code sends it, cut down alike."""
    dashed = folder[folder.index("vfx-") :].replace("/", "-")
    text = f"Working directory: {folder}\nMemory: {folder}/.claude-home/projects/-t-{dashed}/memory\nToday is {day}."
    who = json.dumps({"device_id": device, "session_id": uuid})
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}], "metadata": {"user_id": who}}
    return json.dumps(body).encode()


@pytest.mark.parametrize("write", [codex, claude])
def test_an_agents_turn_is_the_same_in_another_run_on_another_day(write: Any) -> None:
    later = datetime(2027, 1, 5, 8, tzinfo=UTC).timestamp()
    first, second = write(OLD, UUIDS[0], "eef1ff", "2026-11-29"), write(NEW, UUIDS[1], "0126ae0", "2027-01-05")
    assert keys(first)[1] == keys(second, later)[1]
    assert keys(first)[0] == keys(write(NEW, UUIDS[1], "0126ae0", "2026-11-29"))[0]
    assert keys(first)[1] != keys(second.replace(b"code 0", b"code 1").replace(b"Memory", b"Other"), later)[1]
