"""LLM judges at work: what they ask, and what they make of the answers.

A judge that a task or a run names is a reward like others. A hook that asks for `judge` puts questions of its own.
"""

import math
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import anyio

from vfx.authoring.hooks import Hook
from vfx.authoring.judge_prompt import again, opening
from vfx.authoring.judge_settings import (
    Criterion,
    JudgeModel,
    ReferenceJudge,
    RubricJudge,
    form_of,
    needs_answer,
    templates_of,
)
from vfx.authoring.verdict import Form, UnreadableError, read_verdict
from vfx.clients.asking import Asker
from vfx.errors import DriftError, ProviderError, RolloutError, ScoringError
from vfx.messages import Message
from vfx.trace.record import Trace

__all__ = ["Judge", "JudgeReward", "judge_hook"]

MAX_AT_ONCE = 8
"""Questions of one rollout that are open at the same time."""
EXCERPT = 200

_GENERAL = "You judge what is put before you, and answer the question about it."


class _Judged(Protocol):
    """A task, as far as judges have to know it."""

    def messages(self, system_prompt: str | None = None) -> Sequence[Message]: ...


class Judge:
    """Asks models to judge one rollout. What it asked, and what was answered, is kept on the trace.

    Args:
        trace: Of the rollout.
        task: Its task.
        find_asker: What asks the model of these settings; None = the run's model for judges.
    """

    def __init__(self, trace: Trace, task: _Judged, find_asker: Callable[[JudgeModel | None], Asker]) -> None:
        self._trace = trace
        self._task = task
        self._find_asker = find_asker
        self._places = anyio.Semaphore(MAX_AT_ONCE)
        self._name = "judge"

    def named(self, name: str) -> "Judge":
        """The same for another reward, under whose name its exchanges are kept."""
        other = Judge(self._trace, self._task, self._find_asker)
        other._places, other._name = self._places, name
        return other

    async def ask(self, prompt: str | Sequence[Message]) -> str:
        """Put a question to the run's model for judges.

        Args:
            prompt: Text, or messages.

        Returns:
            The text of its answer; "" when it gave none.

        Raises:
            ScoringError: There is no answer.
        """
        messages = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        return (await self._ask(self._find_asker(None), messages)).text

    async def score(
        self,
        prompt: str,
        *,
        instructions: str | None = None,
        scale: tuple[float, float] = (0.0, 1.0),
        answer: str | None = None,
        max_asks: int = 3,
    ) -> float:
        """Ask the run's model for judges for a number. How to answer, and within which scale, is added.

        Args:
            prompt: The question. {question}, {reply} and {transcript} stand for the rollout's, {answer} for `answer`.
            instructions: The system prompt; None = a general one.
            scale: The lowest and the highest number.
            answer: The right answer; None = the task's field `answer`, if it is asked for.
            max_asks: How often it is asked, the first time included, until the answer can be read.

        Returns:
            A number within the scale.

        Raises:
            ValueError: A placeholder does not exist, or the scale does not go up.
            ScoringError: There is no answer that can be read.
        """
        about = _GENERAL if instructions is None else instructions
        settings = ReferenceJudge(prompt=prompt, instructions=about, scale=scale, max_asks=max_asks)
        given = {} if answer is None else {"answer": answer}
        messages = _opening(settings, self._task, self._trace, given)
        verdict = await self._verdict(self._find_asker(None), messages, settings)
        return verdict["score"]

    async def run(self, settings: ReferenceJudge | RubricJudge) -> float:
        """Ask a configured judge, and record its metrics.

        Raises:
            ScoringError: A verdict could not be had.
        """
        asker = self._find_asker(settings)
        messages = _opening(settings, self._task, self._trace, {})
        verdicts = await _all(lambda: self._verdict(asker, messages, settings), settings.repeat)
        values = [_value(settings, verdict) for verdict in verdicts]
        metrics: dict[str, float] = {}
        if isinstance(settings, RubricJudge):
            metrics = {each.name: statistics.fmean(v[each.name] for v in verdicts) for each in settings.criteria}
        if settings.repeat > 1:
            metrics["spread"] = statistics.pstdev(values)
        self._trace.metrics |= {f"{self._name}.{name}": value for name, value in metrics.items()}
        return statistics.fmean(values)

    async def _verdict(
        self, asker: Asker, messages: Sequence[Message], settings: ReferenceJudge | RubricJudge
    ) -> Mapping[str, float]:
        form, asked = form_of(settings), messages
        fields = _response_format(form) if settings.structured else None
        reading = _Reading(form)
        for _ in range(settings.max_asks):
            with suppress(_UnreadableVerdict):
                await self._ask(asker, asked, fields, reading.take)
                return reading.verdict
            asked = again(messages, reading.reply, reading.reason, form)
        raise ScoringError(_no_verdict(self._name, settings.max_asks, reading))

    async def _ask(
        self,
        asker: Asker,
        messages: Sequence[Message],
        fields: Mapping[str, Any] | None = None,
        check: Callable[[Message], None] | None = None,
    ) -> Message:
        async with self._places:
            try:
                return await asker.ask(self._trace, "judge", self._name, messages, fields=fields, check=check)
            except DriftError:
                raise
            except ProviderError as error:
                failure = ScoringError(f"judge {self._name!r}: {error}")
                failure.fatal = error.fatal
                # Nobody's code failed: a traceback would tell nothing.
                raise failure from None


class _UnreadableVerdict(ScoringError):  # noqa: N818 - never seen by anyone but the one who asks again
    """An answer without a verdict."""


class _Reading:
    """What could be made of the last answer."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.reply = Message("assistant")
        self.verdict: Mapping[str, float] = {}
        self.reason = ""

    def take(self, reply: Message) -> None:
        self.reply = reply
        try:
            self.verdict = read_verdict(reply, self._form)
        except UnreadableError as error:
            self.reason = str(error)
            raise _UnreadableVerdict(f"the answer can't be read: {error}") from None


class JudgeReward:
    """A configured judge as the function of a reward."""

    def __init__(self, settings: ReferenceJudge | RubricJudge, where: str) -> None:
        self.settings = settings
        self.where = where
        """Where it was configured, for messages."""

    async def __call__(self, judge: Judge) -> float:
        """Its score."""
        return await judge.run(self.settings)


def judge_hook(settings: ReferenceJudge | RubricJudge, where: str) -> Hook:
    """A judge as a reward.

    Args:
        settings: The judge's.
        where: Where it was configured, such as `taskset.task.judges[0]`.
    """
    name = settings.name or settings.type
    metrics = [each.name for each in settings.criteria] if isinstance(settings, RubricJudge) else []
    metrics += ["spread"] if settings.repeat > 1 else []
    return Hook(
        name=name,
        kind="reward",
        function=JudgeReward(settings, where),
        parameters=("judge",),
        is_async=True,
        weight=1.0 if settings.weight is None else settings.weight,
        is_method=False,
        metrics=tuple(f"{name}.{metric}" for metric in metrics),
    )


def _response_format(form: Form) -> Mapping[str, Any]:
    schema = {"name": "verdict", "strict": True, "schema": form.schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _opening(
    settings: ReferenceJudge | RubricJudge, task: _Judged, trace: Trace, given: Mapping[str, str]
) -> Sequence[Message]:
    data: dict[str, str] = {
        "question": _question(task),
        "reply": trace.last_reply,
        "transcript": trace.transcript,
        **given,
    }
    instructions, prompt = templates_of(settings)
    if needs_answer(settings) and "answer" not in data:
        data["answer"] = _answer(settings.answer_field, task)
    criteria = _criteria(settings.criteria) if isinstance(settings, RubricJudge) else ""
    return opening(instructions, prompt, data, criteria, form_of(settings))


def _answer(field: str, task: _Judged) -> str:
    value: Any = getattr(task, field, None)
    if value is None:
        raise ScoringError(f"the task has no answer to compare with: its field {field!r} is not set")
    return str(value)


def _question(task: _Judged) -> str:
    messages = task.messages("")[1:]
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def _criteria(criteria: Iterable[Criterion]) -> str:
    return "\n".join(f"- {each.name}{': ' + each.description if each.description else ''}" for each in criteria)


def _value(settings: ReferenceJudge | RubricJudge, verdict: Mapping[str, float]) -> float:
    if not isinstance(settings, RubricJudge):
        return verdict["score"]
    total = math.fsum(each.weight for each in settings.criteria)
    return math.fsum(each.weight * verdict[each.name] for each in settings.criteria) / total


def _no_verdict(name: str, asks: int, reading: _Reading) -> str:
    again = f" after it was asked {asks} times" if asks > 1 else ""
    text = f"judge {name!r}: the answer can't be read{again}: {reading.reason}"
    # On a line of its own: errors are grouped by their first line.
    start = reading.reply.text.strip()
    return f"{text};\nit begins: {start[:EXCERPT]}" if start else text


async def _all(ask: Callable[[], Awaitable[Mapping[str, float]]], count: int) -> Sequence[Mapping[str, float]]:
    """The verdicts of `count` runs at the same time.

    Raises:
        RolloutError: The first failure; what was under way is given up.
    """
    verdicts: list[Mapping[str, float]] = []
    failures: list[RolloutError] = []

    async def add() -> None:
        try:
            verdicts.append(await ask())
        except RolloutError as error:
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(add, name=f"verdict {number}")
    if failures:
        raise failures[0]
    return verdicts
