"""The embedded model: a small one in a process beside vfx, reached as any other endpoint is."""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import anyio
from anyio.abc import Process

from vfx._concurrency import grace
from vfx.clients import llama_child, local_model
from vfx.clients.base import Client, HttpSettings, LocalSettings, ProviderRequest, ProviderResponse
from vfx.clients.http import HttpClient
from vfx.errors import Mistake, ProviderError, RunError

__all__ = ["LocalClient", "Model"]

READY_S = 60.0
END_GRACE_S = 3.0
DEATH_NOTICE_S = 0.5
STDERR_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Model:
    """A GGUF file to serve."""

    path: Path
    alias: str
    sha256: str | None
    """Checked before it is served; None = not checked."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What the process is told; over a pipe, since arguments and environment can be read by others."""

    model: str
    alias: str
    sha256: str | None
    key: str
    slots: int
    threads: int
    context: int
    max_tokens: int


class LocalClient(Client):
    """Serves a model of its own.

    Sampling is the server's wherever a request says nothing: temperature 0.8 and top_k 40, top_p 0.95, min_p 0.05. At
    temperature 0 these cut nothing, and prompts are never cached, so equal requests get equal answers on one machine.

    Args:
        settings: The user's.
        model: What to serve; None = the one that `vfx model install` fetches.
    """

    def __init__(self, settings: LocalSettings, *, model: Model | None = None) -> None:
        super().__init__()
        self._settings = settings
        known = local_model.SMOLLM2
        self._is_own_model = model is None
        self._model = model or Model(local_model.model_path(known), known.alias, known.sha256)
        # More calls than slots would only wait in the server, silently, as if it were stuck.
        self._slots = anyio.Semaphore(settings.slots)
        self._http: HttpClient | None = None
        self._process: Process | None = None
        self._stderr: IO[bytes] | None = None

    @property
    def default_model(self) -> str | None:
        """The embedded model's name."""
        return self._model.alias

    @property
    def endpoint(self) -> str:
        """See `Client.endpoint`; without the port, which is another one each time."""
        return f"embedded:{self._model.alias}"

    @property
    def server(self) -> str | None:
        """Base URL of the model's server, of use only with its key; None while it is not serving."""
        return self._http.endpoint if self._http else None

    @property
    def pid(self) -> int | None:
        """The server's process; None while it is not serving."""
        return self._process.pid if self._process else None

    def mistakes(self) -> list[Mistake]:
        """See `Client.mistakes`."""
        missing: list[str] = []
        steps: list[str] = []
        if importlib.util.find_spec("xllamacpp") is None:
            missing.append("the package xllamacpp")
            steps.append("pip install 'vfx[local]'")
        if not (local_model.is_installed() if self._is_own_model else self._model.path.is_file()):
            missing.append(f"the file {self._model.path}")
            steps.append("vfx model install")
        if not missing:
            return []
        lines = [
            f"the embedded model is not installed: {' and '.join(missing)} can't be found",
            f"  to install it once:   {' && '.join(steps)}",
            "  or use a provider:    vfx eval arithmetic -m MODEL --client.base-url URL",
        ]
        return [Mistake("\n".join(lines))]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Client.serving`."""
        key = secrets.token_urlsafe(32)
        with tempfile.TemporaryFile(prefix="vfx-model-") as self._stderr:
            async with self._running(self._stderr) as self._process:
                address = await self._ready(self._process, key)
                # The retries bridge a connection that the server closed at the moment it was used.
                retries, wait = min(2, self._settings.max_retries), min(1.0, self._settings.max_retry_wait)
                settings = HttpSettings(
                    base_url=f"{address}/v1", api_key_var=None, max_retries=retries, max_retry_wait=wait
                )
                self._http = HttpClient(settings, key=key)
                self._http.waiting = self.waiting
                try:
                    async with self._http.serving():
                        yield
                finally:
                    self._http = self._process = None

    @asynccontextmanager
    async def _running(self, stderr: IO[bytes]) -> AsyncGenerator[Process]:
        child = Path(llama_child.__file__)
        try:
            process = await anyio.open_process(
                # -P: the folder of the script holds modules named like the standard library's.
                [sys.executable, "-u", "-P", str(child)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"the embedded model can't be started: {error}") from error
        try:
            yield process
        finally:
            with grace(END_GRACE_S, "the embedded model to end"):
                if process.stdin:
                    await process.stdin.aclose()
                await process.wait()
            if process.returncode is None:
                process.kill()
            with anyio.move_on_after(END_GRACE_S, shield=True):
                await process.aclose()

    async def _ready(self, process: Process, key: str) -> str:
        """Tell the process what to serve, and wait for its address."""
        settings, model = self._settings, self._model
        start = _Start(
            model=str(model.path),
            alias=model.alias,
            sha256=model.sha256,
            key=key,
            slots=settings.slots,
            threads=settings.threads,
            context=settings.context,
            max_tokens=settings.max_tokens,
        )
        answer: dict[str, Any] = {}
        with anyio.move_on_after(READY_S) as scope:
            answer = await _ask(process, asdict(start))
        if scope.cancelled_caught:
            raise RunError(f"the embedded model was not ready within {READY_S:g} s{self._stderr_tail()}")
        if "address" in answer:
            return answer["address"]
        if "error" in answer:
            raise RunError(f"the embedded model can't be started: {answer['error']}{self._stderr_tail()}")
        await process.wait()
        raise RunError(f"the embedded model {_ending(process)} before it was ready{self._stderr_tail()}")

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        if self._http is None:
            raise RuntimeError("the client is not serving")
        # With the wait for a slot: it is what grows when there are more calls than slots.
        sent = time.monotonic()
        async with self._slots, AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(self._http.send(request))
            except ProviderError as error:
                raise await self._explained(error) from error
            if response.chunks is not None:
                response.chunks = _ExplainedChunks(response.chunks, self._explained)
            yield response
            if response.error is None:
                self.observer.answered(sent)

    async def _explained(self, error: ProviderError) -> ProviderError:
        """`error`, or the death of the process when that is behind it."""
        process = self._process
        if process is None:
            return error
        # The connection may break a moment before the process can be waited for.
        with anyio.move_on_after(DEATH_NOTICE_S):
            await process.wait()
        if process.returncode is None:
            return error
        return ProviderError(
            f"embedded model died: it {_ending(process)}{self._stderr_tail()}", fatal="embedded model died"
        )

    def _stderr_tail(self) -> str:
        if self._stderr is None:
            return ""
        # By position: the offset of the file is the process's too, which may be writing.
        descriptor = self._stderr.fileno()
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES)).decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()][-20:]
        return "; its last words:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


class _ExplainedChunks:
    """A stream whose break is told by the death of the process that wrote it."""

    def __init__(
        self, chunks: AsyncIterator[bytes], explain: Callable[[ProviderError], Awaitable[ProviderError]]
    ) -> None:
        self._chunks = chunks
        self._explain = explain

    def __aiter__(self) -> "_ExplainedChunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except ProviderError as error:
            raise await self._explain(error) from error


async def _ask(process: Process, start: dict[str, Any]) -> dict[str, Any]:
    """The process's one line of answer; empty when it ended without."""
    if process.stdin is None or process.stdout is None:
        return {}
    line = bytearray()
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        await process.stdin.send(json.dumps(start).encode() + b"\n")
        while not line.endswith(b"\n"):
            line += await process.stdout.receive()
    return json.loads(line) if line.endswith(b"\n") else {}


def _ending(process: Process) -> str:
    code = process.returncode or 0
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
