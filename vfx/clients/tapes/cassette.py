"""A client around another one that keeps what passes on a tape, and answers from it what was asked before.

Requests are found by what they ask, whatever the order in which rollouts come to ask it. Each recorded answer is given
once a launch: equal requests get theirs in the order of recording, and one more is a new question.
"""

import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import anyio
import anyio.to_thread

from vfx._concurrency import off_the_loop
from vfx.clients.base import (
    Client,
    HttpSettings,
    LocalSettings,
    ProviderRequest,
    ProviderResponse,
    ScriptedSettings,
    TapeUse,
)
from vfx.clients.tapes.contents import Contents, Entry
from vfx.clients.tapes.deltas import Beginnings
from vfx.clients.tapes.drift import difference
from vfx.clients.tapes.lines import Answer, Recording, clean, error_fields, read_error
from vfx.clients.tapes.matching import MASKS, Form, digest, forms, translation
from vfx.clients.tapes.pieces import Copied, Pieces
from vfx.clients.tapes.shelf import LEVELS, Shelf
from vfx.clients.tapes.tape import Tape, TapeError
from vfx.clients.tapes.translating import translated
from vfx.clients.tapes.whole import error_dialect, is_lasting
from vfx.errors import ConfigError, DriftError, Mistake, ProviderError, RunError
from vfx.redaction import redact

__all__ = ["CassetteClient"]

JSON_TYPE = (("Content-Type", "application/json"),)
RENAMED = "replayed with this rollout's folders and ids in the place of the recorded ones"


@dataclass(slots=True)
class _Asked:
    """A request that is looked for."""

    request: ProviderRequest
    body: bytes
    """Without secrets, as the tape has it."""
    at: float
    path: str
    """Without a query."""
    query: str
    """A digest of the query; empty when there is none."""
    forms: tuple[Form, Form] | None = None
    """What it is but for what was masked; None = nobody has looked, or it is no JSON."""
    exact: str = ""
    """The key of the same bytes."""

    @classmethod
    def of(cls, request: ProviderRequest, at: float) -> "_Asked":
        path, _, query = request.path.partition("?")
        known = blake2b(query.encode(), digest_size=8).hexdigest() if query else ""
        asked = cls(request, clean(request.body), at, path, known)
        asked.exact = digest(request.method, asked.place, asked.body)
        return asked

    @property
    def place(self) -> str:
        """The path, and which query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def mask(self, ignore: Sequence[re.Pattern[str]]) -> None:
        """Find its forms."""
        self.forms = forms(self.request.method, self.place, self.body, self.at, ignore)

    @property
    def keys(self) -> tuple[str, ...]:
        """From the closest on; of what is no JSON all are the same."""
        masked = [form.key for form in self.forms] if self.forms else [self.exact] * (LEVELS - 1)
        return (self.exact, *masked)


class CassetteClient(Client):
    """Records and replays.

    Args:
        inner: Who makes the calls; when all is replayed it is not even started.
        settings: The user's; they name a tape.
        is_resumed: The run goes on, and so does what its earlier launches have recorded.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        inner: Client,
        settings: HttpSettings | LocalSettings | ScriptedSettings,
        *,
        is_resumed: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        if settings.cassette is None:
            raise ValueError("settings.cassette must name a tape")
        # One of each for the whole chain: who watches looks at the outermost client.
        self.waiting, self.observer = inner.waiting, inner.observer
        self._use = self.tape = TapeUse(str(settings.cassette))
        self._inner = inner
        # What earlier launches of a recording run have been answered is part of it.
        self._mode = "auto" if is_resumed and settings.cassette_mode == "record" else settings.cassette_mode
        self._ignore = [re.compile(pattern) for pattern in settings.cassette_ignore]
        # A relative path counts from where vfx was started, whatever else changes the working directory. A link may
        # lead to a file that is yet to be made.
        self._path = Path(os.path.realpath(settings.cassette))
        self._clock = clock
        self._seen: Contents | None = None
        self._tape: Tape | None = None
        self._shelf = Shelf()
        self._leading_nowhere: set[int] = set()
        """Exchanges that were recorded by attempts that were tried again."""
        self._failure: str | None = None
        self._begun: Beginnings | None = None
        self._searching = anyio.CapacityLimiter(1)

    @property
    def default_model(self) -> str | None:
        """The inner client's."""
        return self._inner.default_model

    @property
    def endpoint(self) -> str:
        """Where answers come from; when all is replayed, where they came from when they were recorded."""
        recorded = self._seen.endpoint if self._seen and self._mode == "replay" else ""
        return recorded or self._inner.endpoint

    def mistakes(self) -> list[Mistake]:
        """See `Client.mistakes`; the inner client's are among them only if it is to be called."""
        where = f"--client.cassette {self._use.path}"
        mistakes = [] if self._mode == "replay" else self._inner.mistakes()
        if self._mode != "replay":
            if not _is_writable(self._path):
                return [*mistakes, Mistake("it can't be written", where, "name another file")]
            if not os.path.exists(self._path):
                return mistakes
        try:
            self._seen = Tape.look(self._path)
        except FileNotFoundError:
            hint = "record it first with --client.cassette-mode record"
            return [*mistakes, Mistake("there is no such file", where, hint)]
        except ConfigError as error:
            return [*mistakes, *error.mistakes]
        has_exchanges = bool(self._seen.entries)
        if self._mode == "replay" and not has_exchanges:
            mistakes.append(Mistake("nothing is recorded on it", where, "record it with --client.cassette-mode record"))
        if self._mode == "record" and has_exchanges:
            hint = "remove the file to record it anew, or add to it with --client.cassette-mode auto"
            mistakes.append(Mistake(f"it holds {len(self._seen.entries)} exchanges already", where, hint))
        return mistakes

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See `Client.serving`.

        Raises:
            RunError: The tape can't be used, or an exchange could not be recorded.
        """
        try:
            try:
                # A tape that is open by the time when this is cancelled is closed below.
                await anyio.to_thread.run_sync(self._open)
            except (ConfigError, TapeError) as error:
                raise RunError(str(error)) from error
            async with AsyncExitStack() as stack:
                if self._mode != "replay":
                    await stack.enter_async_context(self._inner.serving())
                yield
        finally:
            self._close()
        if self._failure is not None:
            raise RunError(f"{self._failure}; the tape lacks what came after")

    def _open(self) -> None:
        """Open the tape and lay out what it holds. Blocks."""
        is_writing = self._mode != "replay"
        self._tape = tape = Tape.open(self._path, is_writing=is_writing, contents=self._seen)
        if is_writing:
            tape.begin(self._inner.endpoint)
        if self._mode != "record":
            self._shelf = Shelf(tape.entries, keys=self._new_keys(tape), skipped=_numbers(tape, self.skipped))

    def _close(self) -> None:
        tape, self._tape = self._tape, None
        if tape is None:
            return
        try:
            if self._mode != "replay":
                self._take_back(tape)
                tape.discard(self._leading_nowhere)
        except TapeError as error:
            self._failure = self._failure or str(error)
        finally:
            tape.close()

    def _take_back(self, tape: Tape) -> None:
        """What an attempt was replayed that is tried again is there for the next one; what it recorded is of no use."""
        numbers = _numbers(tape, self.discarded)
        self.discarded.clear()
        self._leading_nowhere |= {number for number in numbers if not self._shelf.put_back(number)}

    def _new_keys(self, tape: Tape) -> Mapping[int, tuple[str, ...]]:
        """The keys of each exchange that was recorded by other rules than those that hold now."""
        keys: dict[int, tuple[str, ...]] = {}
        for entry in tape.entries:
            if self._ignore or entry.masks != MASKS:
                made = self._forms_of(tape, entry)
                keys[entry.number] = (entry.keys[0], *(form.key for form in made)) if made else entry.keys
        return keys

    def _forms_of(self, tape: Tape, entry: Entry) -> tuple[Form, Form] | None:
        place = f"{entry.path}?{entry.query}" if entry.query else entry.path
        return forms(entry.method, place, tape.request(entry), entry.at, self._ignore)

    @asynccontextmanager
    async def send(self, request: ProviderRequest) -> AsyncGenerator[ProviderResponse]:
        """See `Client.send`."""
        tape = self._tape
        if tape is None:
            raise RuntimeError("the client is not serving")
        if self.discarded:
            self._take_back(tape)
        sent = time.monotonic()
        size = len(request.body)
        asked = await off_the_loop(partial(_Asked.of, request, self._clock()), size)
        level, entry = 0, self._shelf.take(0, asked.exact)
        if entry is None:
            await off_the_loop(partial(asked.mask, self._ignore), size)
            level, entry = self._take_masked(asked)
        if entry is not None:
            yield await self._replayed(tape, asked, entry, level)
            self.observer.answered(sent)
        elif self._mode == "replay":
            yield await self._refused(tape, asked)
        else:
            async with self._recorded(tape, asked) as response:
                yield response

    def _take_masked(self, asked: _Asked) -> tuple[int, Entry | None]:
        for level in range(1, LEVELS):
            if (entry := self._shelf.take(level, asked.keys[level])) is not None:
                return level, entry
        return 0, None

    async def _replayed(self, tape: Tape, asked: _Asked, entry: Entry, level: int) -> ProviderResponse:
        try:
            size = max(entry.length, len(asked.request.body))
            answer, is_told = await off_the_loop(partial(self._answer, tape, asked, entry, level), size)
        except TapeError as error:
            raise ProviderError(str(error), fatal="the tape can't be read") from error
        self._use.replayed += 1
        return ProviderResponse(
            answer.status,
            answer.headers,
            body=answer.body if answer.chunks is None else b"",
            chunks=None if answer.chunks is None else Pieces(answer.body, answer.chunks),
            error=read_error(answer),
            notes=(RENAMED,) if is_told else (),
            endpoint=entry.endpoint,
            taped=f"{tape.id}#{entry.number}",
        )

    def _answer(self, tape: Tape, asked: _Asked, entry: Entry, level: int) -> tuple[Answer, bool]:
        """The recorded answer, told with the names of the rollout that asks now, and whether that changes it."""
        answer = tape.answer(entry)
        if self._mode != "replay":
            tape.learn(entry)
        if level == 0 or asked.forms is None or not asked.forms[0].found:
            return answer, False
        recorded = self._forms_of(tape, entry)
        names = None if recorded is None else translation(recorded[0].found, asked.forms[0].found)
        told = translated(answer, names) if names else answer
        return told, told is not answer

    @asynccontextmanager
    async def _recorded(self, tape: Tape, asked: _Asked) -> AsyncGenerator[ProviderResponse]:
        if self._failure is not None:
            raise ProviderError(self._failure, fatal="the tape can't be written", is_final=True)
        number = tape.take_number()
        async with self._inner.send(asked.request) as response:
            response.taped = f"{tape.id}#{number}"
            if response.chunks is None:
                await self._keep(tape, asked, number, response, None)
                yield response
                return
            pieces: list[bytes] = []
            response.chunks = Copied(response.chunks, pieces)
            try:
                yield response
            finally:
                # Some programs leave as soon as they have read enough: what is whole by then is kept.
                await self._keep(tape, asked, number, response, pieces)

    async def _keep(
        self, tape: Tape, asked: _Asked, number: int, response: ProviderResponse, pieces: list[bytes] | None
    ) -> None:
        body = response.body if pieces is None else b"".join(pieces)
        chunks = None if pieces is None else [len(piece) for piece in pieces]
        answer = Answer(response.status, response.headers, body, chunks, error_fields(response.error))
        work = partial(self._write, tape, asked, number, answer)
        with anyio.CancelScope(shield=True):
            try:
                self._use.recorded += await off_the_loop(work, len(body) + len(asked.body))
            except TapeError as error:
                self._failure = self._failure or str(error)

    def _write(self, tape: Tape, asked: _Asked, number: int, answer: Answer) -> bool:
        """Record an answer that would be right the next time; returns whether it is one."""
        if not is_lasting(asked.request, answer):
            return False
        if self._ignore:
            # What this launch ignores, others need not.
            asked.mask(())
        request = asked.request
        tape.add(Recording(number, asked.at, asked.keys, request.method, asked.path, asked.query, asked.body, answer))
        return True

    async def _refused(self, tape: Tape, asked: _Asked) -> ProviderResponse:
        """What a program is told whose request is not on the tape: no retry would help."""
        text = f"not on the tape {self._use.path}: {self._repeated(asked) or await self._drifted(tape, asked)}"
        error = DriftError(redact(text), fatal=f"not on the tape {self._use.path}", is_final=True)
        line = str(error).partition("\n")[0]
        body = error_dialect(asked.request).error_body(line, type="invalid_request_error", code="not_on_the_tape")
        return ProviderResponse(400, JSON_TYPE, body, error=error)

    def _repeated(self, asked: _Asked) -> str | None:
        count = max(self._shelf.count(level, key) for level, key in enumerate(asked.keys))
        if not count:
            return None
        times = "once" if count == 1 else f"{count} times"
        return f"a request to {asked.path} was recorded {times}, and is asked for a {_ordinal(count + 1)} time"

    async def _drifted(self, tape: Tape, asked: _Asked) -> str:
        """The recorded request that comes nearest, and how this one differs."""
        try:
            # All rollouts may drift at once: one after the other, each in a thread.
            return await anyio.to_thread.run_sync(self._compare, tape, asked, limiter=self._searching)
        except TapeError as error:
            return str(error)

    def _compare(self, tape: Tape, asked: _Asked) -> str:
        if self._begun is None:
            self._begun = Beginnings()
            for entry in tape.entries:
                if (made := self._forms_of(tape, entry)) is not None:
                    self._begun.add(entry.number, f"{entry.method} {entry.path}", made[1].text)
        method, path = asked.request.method, asked.path
        alike = [entry for entry in tape.entries if (entry.method, entry.path) == (method, path)]
        if not alike:
            recorded = ", ".join(sorted({f"{entry.method} {entry.path}" for entry in tape.entries}))
            return f"it holds no {method} {path}, only {recorded}"
        number = self._begun.nearest(f"{method} {path}", asked.forms[1].text) if asked.forms else None
        nearest = next((entry for entry in alike if entry.number == number), alike[0])
        found = difference(
            tape.request(nearest), asked.body, recorded_at=nearest.at, asked_at=asked.at, ignore=self._ignore
        )
        return f"{method} {path} is nearest to exchange {nearest.number}, but differs in {found}"


def _numbers(tape: Tape, taped: Collection[str]) -> set[int]:
    """The numbers of those exchanges that are on this tape."""
    own = f"{tape.id}#"
    return {int(each.removeprefix(own)) for each in taped if each.startswith(own)}


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _is_writable(path: Path) -> bool:
    """Whether a file can be written, or made with the folders that it lacks."""
    # Not Path.exists, which raises where one may not look.
    there = next(place for place in (path, *path.parents) if os.path.exists(place))
    return os.access(there, os.W_OK) and (there == path or there.is_dir())
