"""A conversation held in this process: model, tools and user speak in turns until nobody has more to say."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, PrivateAttr

from vfx.authoring.harness import Harness, Job
from vfx.dialects import chat
from vfx.errors import HarnessError
from vfx.messages import Message
from vfx.runtimes.base import ProgramResult

if TYPE_CHECKING:
    import aiohttp

    from vfx.harnesses.toolbox import Toolbox, ToolConnections

__all__ = ["Chat"]


class Chat(Harness):
    """Asks the model, over HTTP like any other program, and runs what tools it calls. `--max-turns` bounds it."""

    supports_tools: ClassVar[bool] = True
    supports_user: ClassVar[bool] = True
    needs_prompt_file: ClassVar[bool] = False

    tool_timeout: float | None = Field(default=300.0, gt=0)
    """Seconds for one call of a tool, of which the model is told when they are over; None = unbounded."""
    max_result_chars: int = Field(default=50_000, ge=100)
    """Characters of one tool's result; a longer one is cut in its middle."""

    _http: "aiohttp.ClientSession | None" = PrivateAttr(default=None)
    _connections: "ToolConnections | None" = PrivateAttr(default=None)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Holds the connections to the endpoint and to tool servers."""
        # 0.1 s that a dry run, which loads this class, need not pay.
        import aiohttp  # noqa: PLC0415

        # No time-out here: how long the model may take is decided by the client and by --timeout.rollout.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            self._http = http
            try:
                yield
            finally:
                self._http = None
                if self._connections is not None:
                    await self._connections.aclose()

    async def run(self, job: Job) -> ProgramResult | None:
        """Hold the conversation.

        Raises:
            HarnessError: The endpoint answered with an error.
            ToolsetError: A tool server does not answer.
            UserError: The user failed.
        """
        messages = [chat.write_message(message) for message in job.messages]
        if not messages:
            raise HarnessError("the task has no prompt, and nobody else opens the conversation")
        if not job.tools:
            await self._converse(job, messages, None)
            return None
        from vfx.harnesses.toolbox import ToolConnections, open_toolbox  # noqa: PLC0415

        self._connections = self._connections or ToolConnections(self.tool_timeout)
        async with open_toolbox(self._connections, job.tools, max_chars=self.max_result_chars) as toolbox:
            await self._converse(job, messages, toolbox)
        return None

    async def _converse(self, job: Job, messages: list[dict[str, Any]], toolbox: "Toolbox | None") -> None:
        offers = [] if toolbox is None else toolbox.offers
        while True:
            answer, finish_reason = await self._ask(job, messages, offers)
            messages.append(_write_answer(answer))
            if toolbox is not None and answer.tool_calls:
                results = await toolbox.answer(answer.tool_calls, is_cut=finish_reason == "length")
                messages += map(chat.write_message, results)
            elif job.user is None or (said := await job.user.respond()) is None:
                return
            else:
                messages.append(chat.write_message(Message("user", said)))

    async def _ask(
        self, job: Job, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[Message, str | None]:
        if self._http is None:
            raise HarnessError("chat runs only inside serving()")
        offered = {"tools": tools} if tools else {}
        async with self._http.post(
            f"{job.endpoint.base_url}/chat/completions",
            json={"model": job.endpoint.model, "messages": messages, **offered},
            headers={"Authorization": f"Bearer {job.endpoint.api_key}"},
        ) as response:
            body: dict[str, Any] = await response.json(content_type=None)
            if response.status >= 400:
                raise HarnessError(f"the endpoint answered {response.status}: {json.dumps(body)[:500]}")
        completion = chat.read_completion(body)
        return completion.messages[0], completion.finish_reasons[0]


def _write_answer(answer: Message) -> dict[str, Any]:
    """An answer as it is sent back. Models that think between calls of tools want their thoughts again."""
    written = chat.write_message(answer)
    if answer.tool_calls and answer.reasoning is not None:
        written["reasoning_content"] = answer.reasoning
    return written
