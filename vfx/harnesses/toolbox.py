"""The tools of one rollout: those of its MCP servers, offered and answered in the form of chat completions.

The SDK is imported when the first rollout with tools begins: it takes longer to load than vfx itself.
"""

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
from pydantic import ValidationError
from pydantic_core import to_json

from vfx._concurrency import grace
from vfx.authoring.harness import ToolServer
from vfx.errors import HarnessError, ToolsetError, root_cause
from vfx.messages import Message, ToolCall

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp_types import CallToolResult, ContentBlock, Tool

__all__ = ["ToolConnections", "Toolbox", "open_toolbox"]

CONNECT_S = 30.0
# Servers commonly drop idle connections after 5 s. One that is used at that moment would look like a dead server.
IDLE_CONNECTION_S = 3.0
CLOSE_S = 5.0
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME_CHARS = 64


class ToolConnections:
    """The HTTP connections to tool servers, shared by all rollouts: with one client each, most of their time is TLS.

    Args:
        call_timeout: Seconds for one call, and for listing the tools of one server; None = unbounded.
    """

    def __init__(self, call_timeout: float | None) -> None:
        self.call_timeout = call_timeout
        self._clients: dict[tuple[tuple[str, str], ...], httpx2.AsyncClient] = {}

    async def client(self, headers: Mapping[str, str]) -> "httpx2.AsyncClient":
        """The client that sends `headers`."""
        key = tuple(sorted(headers.items()))
        if not self._clients:
            await anyio.to_thread.run_sync(import_module, "mcp.client.client")
            # It tells everything twice, to a terminal that belongs to the display, and URLs that hold secrets.
            for name in ("mcp", "httpx2", "httpcore2"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        if key not in self._clients:
            self._clients[key] = _http_client(headers, self.call_timeout)
        return self._clients[key]

    async def aclose(self) -> None:
        """Close them."""
        with grace(CLOSE_S, "connections to tool servers"):
            while self._clients:
                await self._clients.popitem()[1].aclose()


def _http_client(headers: Mapping[str, str], call_timeout: float | None) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=128, keepalive_expiry=IDLE_CONNECTION_S)
    transport = httpx2.AsyncHTTPTransport(limits=limits)
    # The SDK gives up a call before this bound, which holds for what it sends besides.
    timeout = httpx2.Timeout(None, connect=CONNECT_S, read=None if call_timeout is None else call_timeout + CONNECT_S)
    # A proxy that the environment names is not for servers on this host.
    own: dict[str, httpx2.AsyncBaseTransport | None] = {
        f"all://{host}": transport for host in ("127.0.0.1", "localhost", "[::1]")
    }
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout, limits=limits, mounts=own)


@dataclass(frozen=True, slots=True)
class _Tool:
    """One tool: where it is, and what the model is told of it."""

    server: str
    client: "Client"
    name: str
    offer: Mapping[str, Any]


@dataclass(slots=True)
class _Answer:
    """What one call gave."""

    text: str = ""
    images: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """As content parts; a tool's message can't hold them."""
    lost: ToolsetError | None = None


@asynccontextmanager
async def open_toolbox(
    connections: ToolConnections, servers: Mapping[str, ToolServer], *, max_chars: int
) -> AsyncGenerator["Toolbox"]:
    """Connect to the tool servers of one rollout.

    Args:
        connections: What rollouts share.
        servers: By name.
        max_chars: Bound on the text of one result.

    Raises:
        HarnessError: Two servers have a tool of one name.
        ToolsetError: A server does not answer, now or later.
    """
    tools: dict[str, _Tool] = {}
    async with AsyncExitStack() as stack:
        for server in servers.values():
            http = await connections.client(server.headers)
            client = await stack.enter_async_context(_connected(server, http, connections.call_timeout))
            for tool in await _listed(server, client):
                name = _NOT_IN_NAMES.sub("_", tool.name)[:MAX_NAME_CHARS]
                if name in tools:
                    both = f"the tool servers {tools[name].server!r} and {server.name!r} both have a tool {name!r}"
                    raise HarnessError(f"{both}: the model could not tell them apart")
                tools[name] = _Tool(server.name, client, tool.name, _offer(name, tool))
        yield Toolbox(tools, connections.call_timeout, max_chars)


@asynccontextmanager
async def _connected(server: ToolServer, http: "httpx2.AsyncClient", seconds: float | None) -> AsyncGenerator["Client"]:
    """One session; a connection that fails while it lasts ends it, whoever waits for what."""
    from httpx2 import HTTPError  # noqa: PLC0415
    from mcp import Client, MCPError  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    is_open = False
    try:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, read_timeout_seconds=seconds, cache=None) as client:
            is_open = True
            yield client
    except Exception as error:
        if (lost := _first(error, HTTPError)) is not None:
            raise _lost(server.name, lost) from lost
        cause = root_cause(error)
        if not is_open and isinstance(cause, MCPError | RuntimeError):
            raise ToolsetError(f"tool server {server.name!r} can't be used: {cause}") from cause
        raise


async def _listed(server: ToolServer, client: "Client") -> Sequence["Tool"]:
    from mcp import MCPError  # noqa: PLC0415

    tools: list[Tool] = []
    cursors: set[str | None] = {None}
    cursor = None
    try:
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor in cursors:
                return tools
            cursors.add(cursor)
    except (MCPError, ValidationError) as error:
        raise ToolsetError(f"tool server {server.name!r} does not list its tools: {error}") from error


def _offer(name: str, tool: "Tool") -> Mapping[str, Any]:
    function: dict[str, Any] = {"name": name}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": {**function, "parameters": tool.input_schema}}


def _lost(server: str, error: BaseException) -> ToolsetError:
    why = f"{type(error).__name__}: {error}".removesuffix(": ")
    return ToolsetError(f"tool server {server!r} does not answer any more: {why}")


def _first(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first exception of a kind that `error` is or holds."""
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        return next((found for member in members if (found := _first(member, kind)) is not None), None)
    return error if isinstance(error, kind) else None


class Toolbox:
    """Answers what the model calls. Whatever is wrong with a call is told to the model, which may do better."""

    def __init__(self, tools: Mapping[str, _Tool], call_timeout: float | None, max_chars: int) -> None:
        self._tools = tools
        self._call_timeout = call_timeout
        self._max_chars = max_chars

    @property
    def offers(self) -> list[Mapping[str, Any]]:
        """The tools as a request's `tools`."""
        return [tool.offer for tool in self._tools.values()]

    async def answer(self, calls: Sequence[ToolCall], *, is_cut: bool) -> list[Message]:
        """The results of the calls of one answer, which run at the same time, in the order of the calls.

        Args:
            calls: What the model asked for.
            is_cut: Whether the answer ended at its limit of tokens, perhaps amid the last call.

        Raises:
            ToolsetError: A server does not answer any more.
        """
        answers = [_Answer() for _ in calls]
        async with anyio.create_task_group() as group:
            for number, (call, answer) in enumerate(zip(calls, answers, strict=True)):
                half = is_cut and number == len(calls) - 1
                group.start_soon(self._answer, call, answer, half, name=f"tool {call.name}")
        for answer in answers:
            if answer.lost is not None:
                raise answer.lost
        texts = [self._bounded(answer.text) for answer in answers]
        results = [Message("tool", text, tool_call_id=call.id) for call, text in zip(calls, texts, strict=True)]
        images = [image for answer in answers for image in answer.images]
        return [*results, Message("user", images)] if images else results

    async def _answer(self, call: ToolCall, answer: _Answer, is_cut: bool) -> None:  # noqa: FBT001
        from mcp import MCPError  # noqa: PLC0415
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT  # noqa: PLC0415

        tool = self._tools.get(call.name)
        if tool is None:
            answer.text = f"error: there is no tool {call.name!r}; there are: {', '.join(self._tools)}"
            return
        try:
            arguments = _read_arguments(call.arguments, is_cut=is_cut)
        except ValueError as error:
            answer.text = f"error: {error}; the tool was not called"
            return
        try:
            _write_result(await tool.client.call_tool(tool.name, arguments), answer)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or error.message == "Session terminated":
                answer.lost = _lost(tool.server, error)
            elif error.code == REQUEST_TIMEOUT:
                answer.text = f"error: the tool had not answered after {self._call_timeout:g} s"
            else:
                answer.text = f"error: {error.message}"
        except (RuntimeError, ValidationError) as error:  # A result that is not what the protocol or the tool says.
            answer.text = f"error: {error}"

    def _bounded(self, text: str) -> str:
        if len(text) <= self._max_chars:
            return text
        kept = self._max_chars // 2
        note = f"\n[... {len(text) - 2 * kept:,} characters are left out here ...]\n"
        return f"{text[:kept]}{note}{text[len(text) - kept :]}"


def _read_arguments(text: str, *, is_cut: bool) -> dict[str, Any]:
    """The arguments of a call.

    Raises:
        ValueError: They can't be read, or can't be sent on.
    """
    why = "; the answer was cut off at its limit of tokens" if is_cut else ""
    if is_cut and not text.strip():
        raise ValueError(f"the arguments are missing{why}")
    try:
        arguments: object = json.loads(text, parse_constant=_refuse) if text.strip() else {}
        # As deep as they will stand in the request.
        to_json({"params": {"arguments": arguments}})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are not valid JSON: {error}{why}") from error
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments must be a JSON object, got {text:.80}")  # noqa: TRY004
    return cast("dict[str, Any]", arguments)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _write_result(result: "CallToolResult", answer: _Answer) -> None:
    texts = [text for block in result.content if (text := _text_of(block, answer))]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(texts)
    answer.text = f"error: {text or 'the tool failed and does not say why'}" if result.is_error else text


def _text_of(block: "ContentBlock", answer: _Answer) -> str:
    """What of a result's content can stand in a tool's message."""
    if block.type == "text":
        return block.text
    if block.type == "image":
        answer.images.append({"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}})
        return f"[{block.mime_type}, shown after the results of tools]"
    if block.type == "audio":
        return f"[{block.mime_type}, left out]"
    if block.type == "resource_link":
        return f"[resource {block.name}: {block.uri}]"
    text = getattr(block.resource, "text", None)
    return text if isinstance(text, str) else f"[resource {block.resource.uri}, left out]"
