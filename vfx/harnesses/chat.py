"""A conversation held in this process: sends the prompt, and ends when the model has answered. Needs no program."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PrivateAttr

from vfx.authoring.harness import Harness, Job
from vfx.dialects import chat
from vfx.errors import HarnessError
from vfx.runtimes.base import ProgramResult

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Chat"]


class Chat(Harness):
    """Asks once, over HTTP like any other program, and takes the answer as the result."""

    needs_prompt_file: ClassVar[bool] = False

    _http: "aiohttp.ClientSession | None" = PrivateAttr(default=None)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Holds the connections to the endpoint."""
        # 0.1 s that a dry run, which loads this class, need not pay.
        import aiohttp  # noqa: PLC0415

        # No time-out here: how long the model may take is decided by the client and by --timeout.rollout.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            self._http = http
            yield
            self._http = None

    async def run(self, job: Job) -> ProgramResult | None:
        """Hold the conversation.

        Raises:
            HarnessError: The endpoint answered with an error.
        """
        messages = [chat.write_message(message) for message in job.messages]
        if not messages:
            raise HarnessError("the task has no prompt, and nobody else opens the conversation")
        await self._ask(job, messages)
        return None

    async def _ask(self, job: Job, messages: list[dict[str, Any]]) -> dict[str, Any]:
        if self._http is None:
            raise HarnessError("chat runs only inside serving()")
        async with self._http.post(
            f"{job.endpoint.base_url}/chat/completions",
            json={"model": job.endpoint.model, "messages": messages},
            headers={"Authorization": f"Bearer {job.endpoint.api_key}"},
        ) as response:
            body: dict[str, Any] = await response.json(content_type=None)
            if response.status >= 400:
                raise HarnessError(f"the endpoint answered {response.status}: {json.dumps(body)[:500]}")
            return body
