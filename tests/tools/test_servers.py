import json
import os
import secrets
import signal
import time
from pathlib import Path

import anyio
import httpx
import pytest

from tests.support.processes import is_alive
from tests.support.provider import completion, scripted_provider
from tests.tools.serving import call, post, staged, text_of
from tests.tools.toolsets import (
    Broken,
    Counter,
    EndingOne,
    EndingThree,
    EndingTwo,
    Exits,
    Failing,
    Hangs,
    Impostor,
    Nonsense,
    Search,
    Slow,
    SlowThree,
    SlowTwo,
    Unready,
)
from vfx.errors import RunError, ToolsetError

pytestmark = pytest.mark.anyio


async def refusal(entries: dict[str, type], data: dict[str, object] | None = None) -> str:
    """Why the run can't go on."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with staged(entries, data=data):
            raise AssertionError("it has started")
    found = caught.value.subgroup(RunError)
    assert found is not None
    return str(found.exceptions[0])


async def test_a_shared_tool_is_called_by_a_rollout() -> None:
    async with staged({"search": Search}, data={"search": {"label": "seen"}}) as stage, stage.opened() as tools:
        url = tools.servers["search"].url
        assert json.loads(text_of(await call(url, "query", text="sun", k=1))) == ["seen sun 0"]
        assert json.loads(text_of(await call(url, "thread_of"))) == {"main": False, "key": "a-state-key"}


async def test_a_shared_server_knows_whose_call_it_serves() -> None:
    async with staged({"search": Search}) as stage:

        async def ask(key: str) -> None:
            async with stage.opened(key) as tools:
                for _ in range(5):
                    assert text_of(await call(tools.servers["search"].url, "whose")) == key

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, f"key-{number}")


async def test_each_rollout_has_its_own_process_folder_and_count() -> None:
    async with staged(own={"counter": Counter}) as stage, stage.opened() as one, stage.opened() as other:
        urls = [tools.servers["counter"].url for tools in (one, other)]
        assert [text_of(await call(url, "add", number=5)) for url in (*urls, urls[0])] == ["105", "105", "110"]
        places = [json.loads(text_of(await call(url, "place"))) for url in urls]
        assert places[0]["pid"] != places[1]["pid"]
        assert places[0]["folder"] != places[1]["folder"]
        assert places[0]["env"]["HOME"] == places[0]["folder"]


async def test_a_server_gets_the_variables_that_it_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_COUNTER", "for it")
    monkeypatch.setenv("TOKEN_OF_ANOTHER", "not for it")
    async with staged(own={"counter": Counter}) as stage, stage.opened() as tools:
        env = json.loads(text_of(await call(tools.servers["counter"].url, "place")))["env"]
    assert env["TOKEN_OF_THE_COUNTER"] == "for it"
    assert "not for it" not in env.values()


async def test_a_colocated_server_works_where_the_program_does() -> None:
    async with staged(own={"counter": Counter}, data={"counter": {"colocated": True}}) as stage:
        async with stage.opened() as tools:
            place = json.loads(text_of(await call(tools.servers["counter"].url, "place")))
            assert Path(place["folder"]) == await stage.runtime.workdir()
        assert Path(place["folder"]).exists()
        assert not is_alive(place["pid"])


async def test_nothing_of_a_rollouts_server_is_left_when_it_has_ended() -> None:
    async with staged(own={"counter": Counter}) as stage:
        async with stage.opened() as tools:
            url = tools.servers["counter"].url
            place = json.loads(text_of(await call(url, "place")))
            child = int(text_of(await call(url, "spawn")))
        assert not is_alive(place["pid"])
        assert not is_alive(child)
        assert not Path(place["folder"]).exists()


async def test_what_answers_in_the_place_of_a_server_is_not_used() -> None:
    async with scripted_provider(default=completion("I am someone else")) as provider:
        told = await refusal({"impostor": Impostor}, {"impostor": {"port": provider.port}})
        assert told == f"tool server 'impostor' (Impostor) is not what answers at port {provider.port}; it is not used"
        [request] = provider.requests
        assert "authorization" not in request.headers


async def test_slow_servers_start_at_the_same_time() -> None:
    started = time.monotonic()
    async with staged(
        {"one": Slow, "two": SlowTwo, "three": SlowThree},
        data={name: {"seconds": 2} for name in ("one", "two", "three")},
    ):
        assert time.monotonic() - started < 6 + 2


async def test_servers_that_do_not_start_are_all_named_with_their_reasons() -> None:
    told = await refusal(
        {"exits": Exits, "failing": Failing, "hangs": Hangs, "unready": Unready}, {"hangs": {"start_timeout": 1.0}}
    )
    lines = told.split("tool server ")
    assert len(lines) == 5
    assert "'exits' (Exits) ended before it was ready: exit code 7; its last words: " in told
    assert "no index at all" in told
    assert "'failing' (Failing) could not be started: FileNotFoundError: there is no corpus.idx" in told
    assert "'hangs' (Hangs) was not ready after 1 s (start_timeout); its last words: going to hang" in told
    assert "'unready' (Unready) could not be started: PydanticSchemaGenerationError" in told


async def test_what_a_server_prints_is_not_taken_for_its_report() -> None:
    async with staged({"nonsense": Nonsense}, data={"nonsense": {"seconds": 0}}) as stage, stage.opened() as tools:
        assert (await call(tools.servers["nonsense"].url, "nothing"))["content"] == []


async def test_two_servers_with_a_tool_of_one_name_are_refused() -> None:
    assert await refusal({"one": Search, "other": Search}) == (
        "the tool servers one and other all have a tool query, whose, thread_of, leave, wait: rename it in one of them"
    )


async def test_a_call_after_the_rollouts_end_is_refused_and_one_under_way_is_cancelled() -> None:
    async with staged({"search": Search}) as stage, anyio.create_task_group() as group:
        statuses: list[int] = []

        async def ask(url: str) -> None:
            params = {"name": "wait", "arguments": {"seconds": 60}}
            response = await post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            statuses.append(response.status_code)

        async with stage.opened() as tools:
            url = tools.servers["search"].url
            group.start_soon(ask, url)
            await anyio.sleep(0.3)
        with anyio.fail_after(5):
            while not statuses:
                await anyio.sleep(0.01)
        response = await post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert (statuses, response.status_code) == ([401], 401)


async def test_those_who_have_a_dead_server_open_are_told_how_it_died_and_the_next_get_a_new_one() -> None:
    async with staged({"search": Search}) as stage:
        async with stage.opened() as tools, stage.opened() as bystander:
            url = tools.servers["search"].url
            with anyio.fail_after(5), tools.watched():
                with pytest.raises(httpx.HTTPError):
                    await call(url, "leave", code=3)
                await anyio.sleep_forever()
            with anyio.fail_after(5), bystander.watched():
                await anyio.sleep_forever()
        cause = "tool server 'search' died: exit code 3; its last words: last words on stdout\nlast words on stderr"
        assert (tools.death, bystander.death) == (cause, cause)
        async with stage.opened() as tools:
            assert tools.servers["search"].url.partition("?")[0] == url.partition("?")[0]
            assert "found" in text_of(await call(tools.servers["search"].url, "query", text="x"))
        assert stage.servers.restarts == 1


async def test_a_death_that_nobody_has_noticed_is_found_at_the_end() -> None:
    async with staged({"search": Search}) as stage:
        async with stage.opened() as tools:
            with pytest.raises(httpx.HTTPError):
                await call(tools.servers["search"].url, "leave", code=0)
        assert tools.death is not None
        assert tools.death.startswith("tool server 'search' died: exit code 0")


async def test_when_restarts_are_used_up_later_rollouts_err_with_the_cause() -> None:
    async with staged({"search": Search}, data={"search": {"max_restarts": 0}}) as stage:
        async with stage.opened() as tools:
            with pytest.raises(httpx.HTTPError):
                await call(tools.servers["search"].url, "leave", code=4)
        with anyio.fail_after(5), pytest.raises(ToolsetError, match="died: exit code 4; its last words"):
            async with stage.opened():
                pass


async def test_a_killed_server_of_one_rollout_errs_that_one_alone() -> None:
    async with staged(own={"counter": Counter}) as stage, stage.opened() as one:
        async with stage.opened() as other:
            place = json.loads(text_of(await call(other.servers["counter"].url, "place")))
            os.kill(place["pid"], signal.SIGKILL)
            with anyio.fail_after(5), other.watched():
                await anyio.sleep_forever()
        assert other.death == "tool server 'counter' died: killed by signal 9"
        assert text_of(await call(one.servers["counter"].url, "add", number=1)) == "101"
        assert one.death is None


async def test_a_stop_that_fails_is_reported_and_keeps_nobody_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    async with staged({"broken": Broken, "search": Search}, data={"broken": {"seconds": 0}}):
        pass
    assert "tool server 'broken' did not end well: exit code 1" in caplog.text
    assert "RuntimeError: stopping fails" in caplog.text
    assert "'search'" not in caplog.text


async def test_shared_servers_end_in_reverse_and_programs_that_outlive_one_do_not_hold_it_up(tmp_path: Path) -> None:
    shared = {"first": EndingOne, "second": EndingTwo, "third": EndingThree}
    log = tmp_path / "ends.txt"
    async with staged(shared=shared, data={name: {"log": str(log)} for name in shared}):
        began = time.monotonic()
    assert log.read_text().split() == ["EndingThree", "EndingTwo", "EndingOne"]
    assert time.monotonic() - began < 5


async def test_a_server_is_of_one_launch_only() -> None:
    mark = secrets.token_hex(8)
    async with staged({"search": Search}, data={"search": {"label": mark}}) as stage, stage.opened() as tools:
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
        tag = tools.servers["search"].url.partition("rollout=")[2].encode()
    assert not [command for command in commands if mark.encode() in command or tag in command]
