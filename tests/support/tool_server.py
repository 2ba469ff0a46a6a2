"""A tool server like those of other people: the official SDK's, over streamable HTTP, in this process or its own."""

import base64
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp_types import CallToolResult, TextContent

__all__ = ["PIXEL", "served", "tool_process", "tools"]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def tools(name: str = "support") -> MCPServer:  # noqa: C901 - as many as there are cases
    """Tools that add, wait, fail, draw, talk too much, and die; `notes` are kept as long as the server lives."""
    server = MCPServer(name, log_level="ERROR")
    notes: dict[str, list[str]] = {}
    calls: Counter[str] = Counter()

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def wait(seconds: float) -> str:
        """Wait, and say for how long."""
        await anyio.sleep(seconds)
        return f"waited {seconds:g} s"

    def fail() -> str:
        """Fail."""
        raise ValueError("it does not work")

    def draw() -> list[Any]:
        """Give a picture."""
        return ["a pixel", Image(data=PIXEL, format="png")]

    def talk(count: int) -> str:
        """Say that many letters."""
        return "a" + "x" * (count - 2) + "z"

    def note(who: str, text: str) -> str:
        """Keep a note; gives all notes of one person."""
        notes.setdefault(who, []).append(text)
        return "; ".join(notes[who])

    def count(what: str) -> CallToolResult:
        """Count how often something was asked; structured only."""
        calls[what] += 1
        return CallToolResult(content=[], structured_content={"what": what, "count": calls[what]})

    def silent_failure() -> CallToolResult:
        """Fail without words."""
        return CallToolResult(content=[], is_error=True)

    def words() -> CallToolResult:
        """Give two texts."""
        return CallToolResult(content=[TextContent(text="one"), TextContent(text="two")])

    def die() -> str:
        """End this process."""
        os._exit(1)

    for tool in (add, wait, fail, draw, talk, note, count, silent_failure, words, die):
        server.tool(structured_output=False)(tool)
    return server


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _server(server: MCPServer, listener: socket.socket) -> tuple[_Uvicorn, str]:
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn_server = _Uvicorn(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    return uvicorn_server, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


@asynccontextmanager
async def served(server: MCPServer) -> AsyncGenerator[str]:
    """Serve it in this process; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running, url = _server(server, listener)
        async with anyio.create_task_group() as group:
            group.start_soon(running.serve, [listener])
            while not running.started:
                await anyio.sleep(0.005)
            try:
                yield url
            finally:
                running.should_exit = True


@asynccontextmanager
async def tool_process() -> AsyncGenerator[str]:
    """The same in a process of its own, which can die; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        argv = [sys.executable, "-m", __name__, str(listener.fileno())]
        async with await anyio.open_process(argv, pass_fds=[listener.fileno()], stdout=None, stderr=None) as process:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            listener.close()
            try:
                yield url
            finally:
                if process.returncode is None:
                    process.kill()


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        running, _ = _server(tools(), listener)
        running.run(sockets=[listener])


if __name__ == "__main__":
    _main()
