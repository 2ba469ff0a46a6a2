"""What one rollout asked and was answered, to be looked up when its program asks again. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vfx.clients.conversations import Form, as_body, chain, form_of, identity, told
from vfx.clients.tapes.drift import difference
from vfx.clients.tapes.matching import translation
from vfx.errors import DriftError, ProviderError
from vfx.messages import Completion, Message
from vfx.trace.record import ErrorRecord, Trace

__all__ = ["Recording"]


@dataclass(slots=True)
class _Exchange:
    """One call that became a turn, or that the provider failed."""

    at: float
    """When it was made, in seconds since the epoch."""
    answer: Completion | None = None
    """None when it failed."""
    error: ErrorRecord | None = None
    read_prompt: Callable[[], Sequence[Message]] = tuple[Message, ...]
    digest: bytes = b""
    """Identity of the prompt."""
    length: int = 0
    """Messages of the prompt."""
    is_used: bool = False
    _form: Form | None = None

    @property
    def form(self) -> Form:
        """The prompt as it is compared."""
        if self._form is None:
            self._form = form_of(self.read_prompt(), self.at)
        return self._form


class Recording:
    """The exchanges of one recorded rollout, each to be given once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._tracks: dict[str | None, _Track] = {None: _Track(_turns(trace), "the program")}
        """By who asked; None = the program."""
        for side in dict.fromkeys(f"{call.purpose} {call.name}" for call in trace.side_calls):
            self._tracks[side] = _Track(_side_turns(trace, side), side)
        self._drift: DriftError | None = None

    @property
    def num_unasked(self) -> int:
        """Answers that the program has not asked for."""
        return self._tracks[None].num_unasked

    def find(self, prompt: Sequence[Message], now: float, side: str | None = None) -> Completion | ProviderError:
        """The recorded answer to `prompt`; an error when the provider failed that call.

        Args:
            prompt: The messages that the model would be sent.
            now: When it is asked, in seconds since the epoch.
            side: Who asks beside the program; None = the program.

        Raises:
            DriftError: It is on no record, or an earlier one was not.
        """
        if self._drift is not None:
            raise self._drift
        track = self._tracks.get(side) or _Track((), str(side))
        try:
            return track.find(prompt, now, is_cut=self.trace.stop_condition == "context_length")
        except DriftError as drift:
            self._drift = drift
            raise


class _Track:
    """The exchanges of one who asks, in recorded order."""

    def __init__(self, exchanges: Iterable[_Exchange], asker: str) -> None:
        self._exchanges = list(exchanges)
        self._asker = asker
        self._by_prompt: dict[bytes, list[tuple[int, Completion]]] = {}
        self._by_length: dict[int, list[tuple[int, Completion]]] = {}
        for index, exchange in enumerate(self._exchanges):
            if exchange.answer is not None:
                self._by_prompt.setdefault(exchange.digest, []).append((index, exchange.answer))
                self._by_length.setdefault(exchange.length, []).append((index, exchange.answer))
        self._latest = -1
        """The furthest of the exchanges that were given."""

    @property
    def num_unasked(self) -> int:
        return sum(1 for exchange in self._exchanges if exchange.answer is not None and not exchange.is_used)

    def find(self, prompt: Sequence[Message], now: float, *, is_cut: bool) -> Completion | ProviderError:
        for index, answer in self._by_prompt.get(chain(b"", prompt), ()):
            if not self._exchanges[index].is_used:
                return self._give(index, answer)
        asked = form_of(prompt, now)
        for index, answer in self._by_length.get(len(prompt), ()):
            exchange = self._exchanges[index]
            if not exchange.is_used and exchange.form.key == asked.key:
                return self._give(index, answer, asked)
        if (index := self._next_failed()) is not None:
            return self._fail(index, is_cut=is_cut)
        raise DriftError(f"drift: {self._difference(prompt, asked, now)}", is_final=True)

    def _give(self, index: int, answer: Completion, asked: Form | None = None) -> Completion:
        """An answer, about the folders and ids of whoever asks."""
        exchange = self._exchanges[index]
        exchange.is_used = True
        self._latest = max(self._latest, index)
        names: Mapping[str, str] = {} if asked is None else translation(exchange.form.found, asked.found)
        return replace(answer, messages=tuple(told(message, names) for message in answer.messages))

    def _next_failed(self) -> int | None:
        """The failed call that comes next; None when an answer does, or nothing."""
        for index in range(self._latest + 1, len(self._exchanges)):
            exchange = self._exchanges[index]
            if not exchange.is_used:
                return index if exchange.answer is None else None
        return None

    def _fail(self, index: int, *, is_cut: bool) -> ProviderError:
        self._exchanges[index].is_used = True
        self._latest = index
        error = self._exchanges[index].error
        text, status = ("", None) if error is None else (error.message, error.status)
        is_last = index == len(self._exchanges) - 1
        return ProviderError(text, status=status, truncated=is_cut and is_last)

    def _difference(self, prompt: Sequence[Message], asked: Form, now: float) -> str:
        answered = [exchange for exchange in self._exchanges if exchange.answer is not None]
        if not answered:
            return f"{self._asker} was given no answer in the recorded rollout"
        like = (self._exchanges[index] for index, _ in self._by_length.get(len(prompt), ()))
        times = sum(exchange.form.key == asked.key for exchange in like)
        if times:
            return f"{self._asker} asked the same once more than the {times} times on record"
        nearest = max(answered, key=lambda exchange: _nearness(exchange, prompt))
        recorded = as_body(nearest.read_prompt())
        words = difference(recorded, as_body(prompt), recorded_at=nearest.at, asked_at=now)
        return f"{self._asker} asked what is on no record; the nearest there differs at {words}"


def _nearness(exchange: _Exchange, prompt: Sequence[Message]) -> tuple[int, int]:
    """How many messages are the same from the first on, and how alike the lengths are."""
    shared = 0
    for ours, theirs in zip(exchange.read_prompt(), prompt, strict=False):
        if identity(ours) != identity(theirs):
            break
        shared += 1
    return shared, -abs(exchange.length - len(prompt))


def _turns(trace: Trace) -> Iterable[_Exchange]:
    known: dict[int | None, tuple[bytes, int]] = {None: (b"", 0)}
    for call in trace.calls:
        if call.nodes:
            end = trace.nodes[call.nodes[0]].parent
            digest, length = _walk(trace, end, known)
            messages = tuple(trace.nodes[node].message for node in call.nodes)
            answer = Completion(messages, tuple(call.finish_reasons), call.usage, call.model)
            yield _Exchange(call.span.start, answer, None, partial(_path, trace, end), digest, length)
        elif call.error is not None and call.error.kind == ProviderError.kind:
            yield _Exchange(call.span.start, error=call.error)


def _path(trace: Trace, end: int | None) -> Sequence[Message]:
    return () if end is None else trace.graph.path(end)


def _walk(trace: Trace, end: int | None, known: dict[int | None, tuple[bytes, int]]) -> tuple[bytes, int]:
    """Identity and length of the conversation that node `end` ends."""
    trail: list[int] = []
    for node in trace.graph.ancestry(end):
        if node in known:
            break
        trail.append(node)
    for node in reversed(trail):
        digest, length = known[trace.nodes[node].parent]
        known[node] = chain(digest, [trace.nodes[node].message]), length + 1
    return known[end]


def _side_turns(trace: Trace, side: str) -> Iterable[_Exchange]:
    for call in trace.side_calls:
        if f"{call.purpose} {call.name}" != side:
            continue
        if call.reply is not None:
            answer = Completion((call.reply,), ("stop",), call.usage, call.model)
            digest = chain(b"", call.messages)
            yield _Exchange(
                call.span.start, answer, None, partial(tuple[Message, ...], call.messages), digest, len(call.messages)
            )
        elif call.error is not None:
            yield _Exchange(call.span.start, error=call.error)
