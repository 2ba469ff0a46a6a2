"""What a tool server's process does: builds the toolset, binds a port and serves MCP until its supervisor ends it.

The SDK is used without sessions and with plain JSON answers, so that a server that was started again is no different
to its clients, and nothing is kept for clients that have gone. Everything that is imported here is imported once, in
the process that servers are forked from.
"""

import json
import logging
import signal
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, Tool
from pydantic import ValidationError

from vfx._http_server import HttpServer, listen
from vfx.authoring.toolset import Toolset, tool_methods
from vfx.clients.shared_state import connected
from vfx.errors import root_cause
from vfx.tools.content import ResultError, to_parts
from vfx.tools.gate import Gate
from vfx.tools.signatures import Signature
from vfx.tools.spec import ServerSpec

__all__ = ["offered", "serve"]

STOP_S = 5.0
MAX_THREADS = 64
MAX_BODY_BYTES = 64 << 20


def serve(spec: ServerSpec, report: Callable[[str], None]) -> int:
    """Serve until SIGTERM.

    Args:
        spec: What to serve.
        report: Takes the line that says where: `{"port": ...}`.

    Returns:
        The exit code.
    """
    # Both libraries log the URLs they are called by, which hold a rollout's secret.
    logging.basicConfig(level=logging.WARNING)
    try:
        toolset = spec.load()
        tools = Tools(toolset)
    except Exception as error:  # noqa: BLE001 - the author's code
        _tell(report, error)
        return 1
    return anyio.run(_serve, spec, toolset, tools, report, backend_options={"use_uvloop": False})


def _tell(report: Callable[[str], None], error: Exception) -> None:
    traceback.print_exception(error)
    cause = root_cause(error)
    report(json.dumps({"error": f"{type(cause).__name__}: {cause}"}))


async def _serve(spec: ServerSpec, toolset: Toolset, tools: "Tools", report: Callable[[str], None]) -> int:
    code = 0
    async with connected(), anyio.create_task_group() as group:
        group.start_soon(_cancel_on_sigterm, group.cancel_scope)
        try:
            await toolset.start()
            try:
                await _listen(spec, tools, report)
            finally:
                with anyio.move_on_after(STOP_S, shield=True):
                    await toolset.stop()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except Exception as error:  # noqa: BLE001 - the author's code
            code = 1
            _tell(report, error)
        group.cancel_scope.cancel()
    return code


async def _cancel_on_sigterm(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


async def _listen(spec: ServerSpec, tools: "Tools", report: Callable[[str], None]) -> None:
    manager = StreamableHTTPSessionManager(
        tools.server(spec.name), json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
    )
    async with manager.run():
        with _listener(spec.port) as listener:
            endpoint = HttpServer(Gate(manager.handle_request, spec.key))
            await endpoint.startup(sockets=[listener])
            try:
                report(json.dumps({"port": listener.getsockname()[1]}))
                await anyio.sleep_forever()
            finally:
                endpoint.abort()


def _listener(port: int) -> socket.socket:
    # Another program may have taken the port in the meantime.
    with suppress(OSError):
        return listen(port)
    return listen()


@cache
def offered(owner: type[Toolset]) -> tuple[Mapping[str, Signature], ListToolsResult]:
    """The tools of a class and how they are told; where many servers of it are forked, made up before."""
    signatures = {name: Signature(name, method) for name, method in tool_methods(owner).items()}
    tools = [
        Tool(name=name, description=signature.description or None, input_schema=signature.schema)
        for name, signature in signatures.items()
    ]
    return signatures, ListToolsResult(tools=tools)


class Tools:
    """The tools of one toolset as the SDK asks for them."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._signatures, self._listing = offered(type(toolset))
        self._threads = anyio.CapacityLimiter(MAX_THREADS)

    def server(self, name: str) -> Server[Any]:
        """The SDK's server for them."""

        async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
            return self._listing

        async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
            return await self.call(params.name, params.arguments or {})

        return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. What goes wrong is a result too, which the model can act on."""
        signature = self._signatures.get(name)
        if signature is None:
            return _failed(f"there is no tool {name!r}; there are: {', '.join(self._signatures)}")
        seconds = self._toolset.call_timeout
        try:
            with anyio.move_on_after(seconds) as deadline:
                value = await self._run(signature, signature.bind(arguments))
                return _result(to_parts(value), is_error=False)
        except SystemExit as error:
            return _failed(f"{name} calls sys.exit({'' if error.code is None else repr(error.code)})")
        except Exception as error:  # noqa: BLE001 - the author's code
            # The text of a KeyError is the key alone.
            cause = root_cause(error)
            says_why = str(cause) and not isinstance(cause, KeyError)
            return _failed(str(cause) if says_why else f"{type(cause).__name__}: {cause}".removesuffix(": "))
        assert deadline.cancelled_caught  # noqa: S101
        return _failed(f"{name} had not ended after {seconds:g} s")

    async def _run(self, signature: Signature, arguments: dict[str, Any]) -> Any:
        call = partial(signature.function, self._toolset, **arguments)
        if signature.is_async:
            return await call()
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _failed(text: str) -> CallToolResult:
    return _result(to_parts(text), is_error=True)


def _result(parts: list[dict[str, Any]], *, is_error: bool) -> CallToolResult:
    try:
        return CallToolResult.model_validate({"content": parts, "isError": is_error})
    except ValidationError as error:
        kinds = ", ".join(sorted({part["type"] for part in parts}))
        raise ResultError(f"its result is no content as MCP has it: a part of type {kinds} is not complete") from error
