import threading
import time

import anyio
import pytest

from vfx.authoring.threads import HookThreads
from vfx.errors import TaskError

pytestmark = pytest.mark.anyio


def test_more_threads_than_places_are_never_used() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def hook() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    async def main() -> None:
        threads = HookThreads(3)
        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(threads.run, "hook", hook)

    anyio.run(main)
    assert most == 3


async def test_an_abandoned_hook_frees_its_place_when_it_ends() -> None:
    threads, release = HookThreads(1), threading.Event()
    with anyio.move_on_after(0.05) as deadline:
        await threads.run("reward 'slow'", release.wait)
    assert deadline.cancelled_caught
    release.set()
    with anyio.fail_after(10):
        assert await threads.run("reward 'next'", lambda: "ran") == "ran"


async def test_when_every_place_is_held_by_abandoned_hooks_the_next_one_says_so() -> None:
    threads, release = HookThreads(2), threading.Event()
    with anyio.move_on_after(0.05):
        async with anyio.create_task_group() as group:
            group.start_soon(threads.run, "reward 'slow' of Word", release.wait)
            group.start_soon(threads.run, "reward 'slow' of Word", release.wait)
    try:
        with anyio.fail_after(10), pytest.raises(TaskError) as caught:
            await threads.run("reward 'next'", lambda: None)
    finally:
        release.set()
    assert str(caught.value) == (
        "all 2 threads for hooks are held by ones that did not end at their deadline: reward 'slow' of Word (2); "
        "with isolate=True they would be killed there"
    )


async def test_one_that_waits_gets_the_place_of_an_abandoned_hook_that_ends() -> None:
    threads, release = HookThreads(2), threading.Event()
    busy = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, "busy", busy.wait)
        with anyio.move_on_after(0.05):
            await threads.run("slow", release.wait)
        threading.Timer(0.2, release.set).start()
        with anyio.fail_after(10):
            assert await threads.run("next", lambda: "ran") == "ran"
        busy.set()


async def test_a_hook_whose_caller_left_before_it_began_does_not_run() -> None:
    threads, ran = HookThreads(1), threading.Event()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await threads.run("hook", ran.set)
    assert await threads.run("hook", lambda: 1) == 1
    assert not ran.is_set()


async def test_an_error_frees_the_place() -> None:
    threads = HookThreads(1)

    def fail() -> None:
        raise KeyError("x")

    for _ in range(3):
        with pytest.raises(KeyError):
            await threads.run("hook", fail)
