"""Toolsets that tests have served: their processes import this module."""
# ruff: noqa: T201

import os
import stat
import sys
import threading
import time
from typing import Annotated, Any, ClassVar

import anyio
import anyio.to_thread
from pydantic import Field, PrivateAttr

import vfx
from vfx.authoring.toolset import caller

__all__ = [
    "Answers",
    "Broken",
    "Counter",
    "EndingOne",
    "EndingThree",
    "EndingTwo",
    "Exits",
    "Failing",
    "Hangs",
    "Impostor",
    "Nonsense",
    "Search",
    "Slow",
    "SlowThree",
    "SlowTwo",
    "Unready",
]


class Search(vfx.Toolset):
    """Looks things up."""

    label: str = "found"

    @vfx.tool
    def query(self, text: str, k: int = 2) -> list[str]:
        """Search the corpus.

        Args:
            text: What to look for,
                in words.
            k: How many.
        """
        return [f"{self.label} {text} {number}" for number in range(k)]

    @vfx.tool
    async def whose(self) -> str:
        """The rollout that calls."""
        return caller.get().state_key

    @vfx.tool
    def thread_of(self) -> dict[str, Any]:
        """Where a plain tool runs, and for whom."""
        return {"main": threading.current_thread() is threading.main_thread(), "key": caller.get().state_key}

    @vfx.tool
    async def leave(self, code: int) -> str:
        """Ends the server."""
        print("last words on stdout")
        print("last words on stderr", file=sys.stderr)
        os._exit(code)

    @vfx.tool
    async def wait(self, seconds: Annotated[float, Field(description="How long.")]) -> str:
        """Takes its time."""
        await anyio.sleep(seconds)
        return "waited"


class Counter(vfx.Toolset):
    """Counts for one rollout, in a file of its own folder."""

    env: tuple[str, ...] = ("TOKEN_OF_THE_COUNTER",)
    _count: int = PrivateAttr(default=0)

    async def start(self) -> None:
        self._count = 100

    @vfx.tool
    def add(self, number: int) -> int:
        """Add to the count."""
        self._count += number
        return self._count

    @vfx.tool
    def place(self) -> dict[str, Any]:
        """Where it works."""
        return {"pid": os.getpid(), "folder": os.getcwd(), "env": dict(os.environ)}

    @vfx.tool
    def spawn(self) -> int:
        """Start a program that outlives the call and has a session of its own."""
        return os.posix_spawn("/bin/sh", ["sh", "-c", "trap '' TERM; sleep 300 & wait"], os.environ, setsid=True)

    @vfx.tool
    def die(self) -> None:
        """Ends the server."""
        os._exit(9)


class Answers(vfx.Toolset):
    """Gives and raises all kinds of things."""

    _meeting: threading.Barrier = PrivateAttr(default_factory=lambda: threading.Barrier(2, timeout=9))

    @vfx.tool
    def fail(self) -> None:
        """Fails."""
        raise LookupError("the shelf is empty")

    @vfx.tool
    async def fail_silently(self) -> None:
        """Fails and does not say why."""
        raise ValueError

    @vfx.tool
    def leave(self) -> None:
        """Leaves."""
        sys.exit(3)

    @vfx.tool
    def look_up(self) -> str:
        """Look up what is not there."""
        return dict[str, str]()["salt"]

    @vfx.tool
    async def fail_in_a_group(self) -> None:
        """Fails in one of several tasks."""
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, self.fail)

    @vfx.tool
    def half_a_part(self) -> dict[str, Any]:
        """Gives content that lacks what it needs."""
        return {"type": "resource", "resource": 3}

    @vfx.tool
    def give_lock(self) -> Any:
        """Gives what nobody can be told."""
        return threading.Lock()

    @vfx.tool
    async def sleep(self) -> None:
        """Takes too long."""
        await anyio.sleep(60)

    @vfx.tool
    def sleep_in_thread(self) -> None:
        """Takes too long, too."""
        time.sleep(2)

    @vfx.tool
    def picture(self) -> dict[str, Any]:
        """Gives a picture."""
        return {"type": "image", "data": b"png", "mimeType": "image/png"}

    @vfx.tool
    def meet(self) -> None:
        """Returns when it is called twice at a time."""
        self._meeting.wait()


class Sleepy(vfx.Toolset):
    seconds: float = 1.0

    async def start(self) -> None:
        await anyio.sleep(self.seconds)


class Slow(Sleepy):
    @vfx.tool
    def nothing(self) -> None:
        """Does nothing."""


class SlowTwo(Sleepy):
    @vfx.tool
    def two(self) -> None:
        """Does nothing, too."""


class SlowThree(Sleepy):
    @vfx.tool
    def three(self) -> None:
        """Neither does this."""


class Hangs(Slow):
    async def start(self) -> None:
        print("going to hang")
        time.sleep(300)  # noqa: ASYNC251


class Exits(Slow):
    async def start(self) -> None:
        print("no index at all", file=sys.stderr)
        sys.exit(7)


class Failing(Slow):
    async def start(self) -> None:
        raise FileNotFoundError("there is no corpus.idx")


class Nonsense(Slow):
    """Writes on what would be our report, from before it is ready."""

    async def start(self) -> None:
        print('{"port": 1}')
        os.write(1, b'{"port": 2}\nnonsense\n')


class Impostor(Slow):
    """Reports the port of something else, as a restart on a port that was taken would."""

    port: int = 0

    async def start(self) -> None:
        for descriptor in range(3, 64):
            try:
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    os.write(descriptor, b'{"port": %d}\n' % self.port)
            except OSError:
                continue


class Unready(vfx.Toolset):
    """Has a tool whose types no schema can tell."""

    @vfx.tool
    def take(self, lock: threading.Event) -> None:
        """Takes what JSON can't hold."""


class Broken(Slow):
    """Fails when it ends."""

    stopped: ClassVar[str] = "stopping fails"

    async def stop(self) -> None:
        raise RuntimeError(self.stopped)


class Ending(vfx.Toolset):
    """Notes its end, and leaves a program behind that does not want to end."""

    log: str = ""

    async def start(self) -> None:
        os.posix_spawn("/bin/sh", ["sh", "-c", "trap '' TERM; sleep 300 & wait"], os.environ, setsid=True)

    async def stop(self) -> None:
        with open(self.log, "a") as file:
            file.write(f"{type(self).__name__}\n")


class EndingOne(Ending):
    @vfx.tool
    def one(self) -> None:
        """Does nothing."""


class EndingTwo(Ending):
    @vfx.tool
    def two(self) -> None:
        """Neither does this."""


class EndingThree(Ending):
    @vfx.tool
    def three(self) -> None:
        """Nor this."""
