"""Toolsets for `tools.py`, in a module that their processes can import."""

from collections.abc import Mapping
from typing import ClassVar

import anyio

import vfx
from vfx.authoring.toolset import Toolsets

SLOW_S = 3.0


class Slow(vfx.Toolset):
    async def start(self) -> None:
        await anyio.sleep(SLOW_S)


def _server(number: int) -> type[vfx.Toolset]:
    """A class whose tool has a name of its own."""

    def answer(self: vfx.Toolset) -> int:
        return number

    name = f"Slow{number}"
    globals()[name] = type(name, (Slow,), {f"tool_{number}": vfx.tool(answer), "__module__": __name__})
    return globals()[name]


SLOW: Mapping[str, type[vfx.Toolset]] = {f"slow_{number}": _server(number) for number in range(12)}


class Note(vfx.Toolset):
    @vfx.tool
    def note(self, text: str) -> str:
        """Say it again."""
        return text


class Noted(vfx.Task):
    toolsets: ClassVar[Toolsets] = {"note": Note}
