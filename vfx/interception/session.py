"""One rollout's side of the interception, without I/O: what a call may do, what it did, and why it stopped.

The shell asks `admit` before a call and settles it with `commit`, `fail`, `hang_up`, `stop` or `abandon`, of which the
first counts. Nothing here awaits, so concurrent calls of one rollout see each other's reservations.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vfx.dialects.base import Earlier
from vfx.errors import DriftError, InterceptionError, ProviderError, RolloutError
from vfx.interception.prompts import PromptMemory
from vfx.interception.retries import RetryRecord
from vfx.interception.rewriting import Rewriter
from vfx.messages import Completion, Message, Sampling, Usage
from vfx.trace.record import Call, ErrorRecord, Span, Trace

__all__ = ["Limits", "Refusal", "Session", "Turn"]

SECRET_BYTES = 24
ALIKE = 3
"""Failures of the provider in a row that are taken for the next one's, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one rollout; None = unbounded."""

    max_turns: int | None = None
    max_input_tokens: int | None = None
    """Tokens of all prompts, as billed."""
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that is not made."""

    reason: str
    """The stop condition it comes from, or why the rollout can't go on."""
    is_stop: bool = True
    """True when a limit or stop ended the rollout cleanly; False when it has failed."""

    @property
    def message(self) -> str:
        """What the program is told."""
        return f"rollout {'stopped' if self.is_stop else 'failed'}: {self.reason}"


@dataclass(slots=True, eq=False)
class Turn:
    """One admitted call, until it is committed or has failed."""

    started: float
    prompt: Sequence[Message] = ()
    tools: Any = None
    effective: dict[str, Any] | None = None
    """The sampling settings that the request carried, as imposed."""
    first_byte: float | None = None
    attempts: int = 1
    waited: float = 0.0
    endpoint: str | None = None
    """Where the answer came from when it was recorded; None = from where calls go now."""
    taped: str | None = None
    """Where the answer stands on a tape; None = on none."""
    earlier: Earlier | None = None
    """The conversation at the provider that the request goes on from."""
    notes: list[str] = field(default_factory=list[str])
    """What the trace can't tell of this call."""
    is_committed: bool = False
    is_suspended: bool = False
    """True while nobody waits for its answer: it then takes no one's place."""


class Session:
    """Limits, stops, and the trace of one rollout."""

    def __init__(
        self,
        trace: Trace,
        *,
        model: str,
        sampling: Sampling,
        endpoint: str,
        limits: Limits | None = None,
        find_stop: Callable[[], Awaitable[str | None]] | None = None,
        rewriter: Rewriter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """See the module.

        Args:
            trace: Where turns are recorded.
            model: The model imposed on every call.
            sampling: The settings imposed on every call.
            endpoint: Where calls go, for the record.
            limits: Bounds on the rollout; None = none.
            find_stop: Asks the task's stop conditions, giving the name of the one that holds; None = there are none.
            rewriter: Shows what passes to the task's intercept hooks; None = there are none.
            clock: Seconds since the epoch.
        """
        self.trace = trace
        self.model = model
        self.sampling = sampling
        self.find_stop = find_stop
        self.rewriter = rewriter
        self.prompts = PromptMemory()
        self.retries = RetryRecord[Any]()
        """Calls that the program may ask for again."""
        self.api_key = secrets.token_urlsafe(SECRET_BYTES)
        self.state_key = secrets.token_urlsafe(SECRET_BYTES)
        """Opens the state and the task to the rollout's tool servers, and no model."""
        self.error: RolloutError | None = None
        """The last call's failure, until a later call succeeds."""
        self.is_closed = False
        self._endpoint = endpoint
        self._limits = limits or Limits()
        self._clock = clock
        self._open_turns: set[Turn] = set()
        self._num_turns = 0
        self._billed = Usage()
        self._kept: dict[str, int] = {}
        """The last node of each answer or conversation that the provider may keep, by its id."""
        self.kept_items: dict[str, Mapping[str, Any]] = {}
        """What answers held that the provider may keep, as it came and by its id."""
        self._failure: str | None = None

    def admit(self) -> Turn | Refusal:
        """Reserve the next turn, or say why there is none."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        turn = Turn(self._clock())
        self._open_turns.add(turn)
        return turn

    def _refusal(self) -> Refusal | None:
        if self.is_closed:
            return Refusal("it has ended", is_stop=False)
        if self._failure is not None:
            return Refusal(self._failure, is_stop=False)
        if self.trace.stop_condition is None:
            self.trace.stop_condition = self._reached_limit()
        return None if self.trace.stop_condition is None else Refusal(self.trace.stop_condition)

    def _reached_limit(self) -> str | None:
        limits, billed = self._limits, self._billed
        # A turn under way counts: concurrent calls can't slip through together.
        turns = self._num_turns + sum(not turn.is_suspended for turn in self._open_turns)
        total = (billed.input_tokens or 0) + (billed.output_tokens or 0)
        reached = {
            "max_turns": limits.max_turns is not None and turns >= limits.max_turns,
            "max_input_tokens": _is_over(billed.input_tokens, limits.max_input_tokens),
            "max_output_tokens": _is_over(billed.output_tokens, limits.max_output_tokens),
            "max_total_tokens": _is_over(total, limits.max_total_tokens),
        }
        return next((name for name, is_reached in reached.items() if is_reached), None)

    def has_turns_left(self) -> bool:
        """True when the next call would be within the limits, as far as they can be known before it."""
        return self._refusal() is None

    def recall(self, turn: Turn, earlier: Earlier) -> list[Message]:
        """The messages of a conversation that the provider keeps; none, and a note, if it began elsewhere."""
        turn.earlier = earlier
        leaf = self._kept.get(earlier.id)
        if leaf is None:
            turn.notes.append(f"goes on from {earlier.id!r}, which is not of this rollout: what it holds is unknown")
            return []
        return self.trace.graph.path(leaf)

    def stop(self, condition: str, turn: Turn) -> Refusal:
        """A stop condition of the task holds: end the rollout here, and give the reservation of `turn` back."""
        self._open_turns.discard(turn)
        if self.trace.stop_condition is None:
            self.trace.stop_condition = condition
        return Refusal(self.trace.stop_condition)

    def suspend(self, turn: Turn) -> None:
        """Nobody waits for the answer any more, though somebody may again."""
        turn.is_suspended = True

    def resume(self, turn: Turn) -> Refusal | None:
        """Somebody waits for the answer again; says why it can't have its place back, if that was taken meanwhile."""
        if turn.is_suspended and turn in self._open_turns:
            refusal = self._refusal()
            if refusal is not None:
                return refusal
            turn.is_suspended = False
        return None

    def abandon(self, turn: Turn) -> None:
        """Give the reservation of `turn` back when the request can't be sent; a settled turn stays as it is."""
        self._open_turns.discard(turn)

    def commit(self, turn: Turn, completion: Completion) -> None:
        """Record an answer as a turn of the conversation. Does nothing once the turn is settled or the rollout over."""
        if not self._settle(turn):
            return
        turn.is_committed = True
        if self._failure is None:
            self.error = None
        self._billed += completion.usage
        nodes = self.trace.graph.commit(turn.prompt, completion.messages, tools=turn.tools)
        if completion.id is not None and nodes:
            self._kept[completion.id] = nodes[0]
            self.kept_items |= completion.items
        if turn.earlier is not None and turn.earlier.is_growing and nodes:
            self._kept[turn.earlier.id] = nodes[0]
        call = self._call(turn)
        call.nodes, call.finish_reasons, call.usage = nodes, completion.finish_reasons, completion.usage
        call.model = completion.model or self.model
        self._num_turns += bool(nodes)
        self.trace.calls.append(call)

    def fail(self, turn: Turn, error: RolloutError, *, partial: Completion | None = None, text: str = "") -> None:
        """Record a failed call: it is no turn, and no limit counts it as one. Does nothing once the turn is settled.

        Args:
            turn: The reservation to give back.
            error: The cause.
            partial: What had been billed of a stream that broke off.
            text: What had arrived of it.
        """
        if not self._settle(turn):
            return
        self._record_failure(turn, error, partial, text)
        self.error = error
        if isinstance(error, DriftError):
            self.give_up(error)
        if isinstance(error, ProviderError) and error.truncated:
            self.trace.stop_condition = self.trace.stop_condition or "context_length"
            self.error = None

    @property
    def fails_for_good(self) -> bool:
        """True when the last calls, one after another, have failed alike, each after every retry that was allowed."""
        last = self.trace.calls[-ALIKE:]
        # What was not sent again is the user's wish, or no failure that passes.
        statuses = {call.error.status if call.error is not None and call.attempts > 1 else None for call in last}
        is_one_by_one = all(one.span.end is not None and one.span.end <= two.span.start for one, two in pairwise(last))
        return len(last) == ALIKE and len(statuses) == 1 and statuses != {None} and is_one_by_one

    def hang_up(self, turn: Turn, *, partial: Completion | None = None, text: str = "") -> None:
        """The program went away before it had the answer: a failed call, but no cause, since something made it go."""
        if self._settle(turn):
            self._record_failure(turn, InterceptionError("program closed the connection"), partial, text)

    def _settle(self, turn: Turn) -> bool:
        """Give the reservation of `turn` back; returns whether what became of it is still to be recorded."""
        is_open = turn in self._open_turns
        self._open_turns.discard(turn)
        return is_open and not self.is_closed

    def _record_failure(self, turn: Turn, error: RolloutError, partial: Completion | None, text: str) -> None:
        call = self._call(turn)
        call.error = ErrorRecord.of(error)
        call.partial = text or None
        if partial is not None:
            call.usage = partial.usage
            self._billed += partial.usage
        self.trace.calls.append(call)

    def turn_away(self, error: RolloutError) -> None:
        """Record a request that was not even read: a failed call."""
        if not self.is_closed:
            self._record_failure(Turn(self._clock()), error, None, "")
            self.error = error

    def give_up(self, error: RolloutError) -> Refusal:
        """Refuse every further call: the rollout can't go on, whatever its program tries."""
        self._failure = str(error)
        self.error = error
        return Refusal(self._failure, is_stop=False)

    def _call(self, turn: Turn) -> Call:
        first = None if turn.first_byte is None else turn.first_byte - turn.started
        return Call(
            model=self.model,
            sampling=turn.effective or {},
            endpoint=turn.endpoint or self._endpoint,
            span=Span(turn.started, self._clock()),
            attempts=turn.attempts,
            waited=round(turn.waited, 3),
            first_byte=first,
            notes=tuple(turn.notes),
            taped=turn.taped,
        )

    def note_first_byte(self, turn: Turn) -> None:
        """The first byte of the answer has come."""
        if turn.first_byte is None:
            turn.first_byte = self._clock()

    def close(self) -> None:
        """The rollout has ended: its secret is dead, and what still runs changes nothing."""
        self.is_closed = True


def _is_over(used: int | None, limit: int | None) -> bool:
    return limit is not None and used is not None and used >= limit
