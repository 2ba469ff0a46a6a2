"""Tool servers that run elsewhere: asked for their tools once, through the SDK, since they may want a handshake."""

import logging
import os
from collections.abc import Mapping

import anyio

from vfx.errors import Mistake, ToolsetError, root_cause
from vfx.redaction import conceal

__all__ = ["ask_for_tools", "header_mistakes", "resolve_headers"]

ENV = "env:"


def header_mistakes(headers: Mapping[str, str], where: str) -> list[Mistake]:
    """Headers whose variable is not set."""
    return [
        Mistake(f"the environment variable {value.removeprefix(ENV)} is not set", f"{where}.headers.{name}")
        for name, value in headers.items()
        if value.startswith(ENV) and not os.environ.get(value.removeprefix(ENV))
    ]


def resolve_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with their true values, which no text of ours shows from now on."""
    resolved = {
        name: os.environ.get(value.removeprefix(ENV), "") if value.startswith(ENV) else value
        for name, value in headers.items()
    }
    conceal(*resolved.values())
    return resolved


async def ask_for_tools(url: str, headers: Mapping[str, str], seconds: float) -> tuple[str, ...]:
    """The names of a server's tools.

    Args:
        url: Where it is.
        headers: For every request.
        seconds: How long it may take.

    Raises:
        ToolsetError: It does not answer in time, or not as an MCP server does.
    """
    # Half a second, which only runs with such servers pay.
    from mcp import Client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
    from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: PLC0415

    # They log URLs, which may hold a secret.
    for name in ("httpx2", "httpx", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with anyio.fail_after(seconds):
            async with (
                create_mcp_http_client(headers=dict(headers)) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                names: list[str] = []
                cursor: str | None = None
                while True:
                    page = await client.list_tools(cursor=cursor)
                    names += [tool.name for tool in page.tools]
                    if (cursor := page.next_cursor) is None:
                        return tuple(names)
    except TimeoutError as error:
        raise ToolsetError(f"did not answer within {seconds:g} s (start_timeout)") from error
    except Exception as error:
        cause = root_cause(error)
        raise ToolsetError(f"can't be used: {type(cause).__name__}: {cause}") from error
