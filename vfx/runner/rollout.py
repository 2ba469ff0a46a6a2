"""One attempt at one task, from the runtime's start to its end. A failure is recorded on the trace, never raised."""

import secrets
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio

from vfx.authoring.harness import Endpoint, Job
from vfx.authoring.hooks import call_hook, hooks_of, lifecycle_hook
from vfx.errors import HarnessError, RolloutError, SandboxError, ScoringError, TaskError, attributed
from vfx.interception.session import Session
from vfx.runner.environment import Environment
from vfx.runner.plan import PlannedRollout
from vfx.runner.scoring import mark_unscored, score
from vfx.runtimes.base import ProgramResult, Runtime
from vfx.trace.record import Agent, ErrorRecord, Span, TaskRef, Trace

__all__ = ["Rollout"]

STDERR_TAIL_CHARS = 2000


class Rollout:
    """Carries one attempt through its stages: setup, agent, finalize, scoring. Each has a deadline and a time span."""

    def __init__(self, environment: Environment, planned: PlannedRollout, attempt: int = 0) -> None:
        self._environment = environment
        self._task = planned.task
        self.trace = Trace(
            id=secrets.token_hex(16),
            task=TaskRef(
                type=type(planned.task).__name__,
                key=planned.task.key,
                occurrence=planned.occurrence,
                data=planned.task.data,
                id=planned.task.id,
                name=planned.task.name,
            ),
            rollout=planned.rollout,
            agent=Agent(
                environment.model, environment.config.sampling.model_dump(exclude_none=True), environment.agent_record
            ),
            attempt=attempt,
        )

    async def run(self) -> Trace:
        """Make the attempt; its errors are on the trace that is returned."""
        total = self._environment.config.timeout.total
        started = time.time()
        try:
            with anyio.move_on_after(total) as deadline:
                await self._run_stages()
            if deadline.cancelled_caught:
                self._fail(HarnessError(f"the rollout took longer than {total:g} s (--timeout.total)"))
        except RolloutError as error:
            self._fail(error)
        finally:
            self.trace.timing["total"] = Span(started, time.time())
        return self.trace

    def _fail(self, error: RolloutError) -> None:
        mark_unscored(self._task, self.trace)
        self.trace.errors.append(ErrorRecord.of(error))

    async def _run_stages(self) -> None:
        environment, task, trace = self._environment, self._task, self.trace
        timeouts = environment.config.timeout
        own = task.timeout
        async with self._runtime(timeouts.setup) as runtime:
            with self._stage("setup", own.setup or timeouts.setup, TaskError):
                await self._lifecycle("setup", runtime)
                with attributed(HarnessError, "harness setup"):
                    await environment.harness.setup(runtime)
            await self._run_agent(runtime, own.rollout or timeouts.rollout)
            with self._stage("finalize", own.finalize or timeouts.finalize, TaskError):
                await self._lifecycle("finalize", runtime)
            with self._stage("scoring", own.scoring or timeouts.scoring, ScoringError):
                await score(task, trace, self._available(runtime), environment.hook_threads)

    @asynccontextmanager
    async def _runtime(self, seconds: float | None) -> AsyncGenerator[Runtime]:
        runtime = self._environment.create_runtime()
        try:
            with self._stage("boot", seconds, SandboxError, flag="setup"):
                await runtime.start()
            yield runtime
        finally:
            await runtime.stop()

    @contextmanager
    def _stage(
        self, name: str, seconds: float | None, owner: type[RolloutError], *, flag: str | None = None
    ) -> Generator[None]:
        """Record the time span of a stage, give its errors an owner, and end it at its deadline.

        Raises:
            RolloutError: Of type `owner`, when the deadline has passed.
        """
        started = time.time()
        self.trace.timing[name] = Span(started)
        try:
            with anyio.move_on_after(seconds) as deadline, attributed(owner, name):
                yield
        finally:
            self.trace.timing[name] = Span(started, time.time())
        if deadline.cancelled_caught:
            raise owner(f"{name} took longer than {seconds:g} s (--timeout.{flag or name})")

    def _available(self, runtime: Runtime) -> Mapping[str, Any]:
        return {"trace": self.trace, "runtime": runtime, "task": self._task}

    async def _lifecycle(self, name: str, runtime: Runtime) -> None:
        hook = lifecycle_hook(type(self._task), name)
        if hook is not None:
            await call_hook(hook, self._task, self._available(runtime), self._environment.hook_threads)

    async def _run_agent(self, runtime: Runtime, seconds: float | None) -> None:
        """Run the program, and tell a clean end from a failure and from a failure's true cause."""
        trace = self.trace
        session = self._session(runtime)
        started = time.time()
        trace.timing["agent"] = Span(started)
        failure: RolloutError | None = None
        try:
            async with self._environment.interception.acquire(session) as slot:
                with anyio.move_on_after(seconds) as deadline:
                    failure = await self._run_harness(runtime, Endpoint(slot.base_url, slot.api_key, session.model))
        finally:
            session.close()
            trace.timing["agent"] = Span(started, time.time())
        if deadline.cancelled_caught:
            failure = HarnessError(f"harness timeout: it had not ended after {seconds:g} s (--timeout.rollout)")
            if trace.num_turns and trace.stop_condition is None:
                # What it reached until then is scored.
                trace.stop_condition = "timeout"
        if trace.stop_condition is not None:
            return
        if session.error is not None and (failure is not None or not trace.num_turns):
            raise session.error
        if failure is not None:
            raise failure

    async def _run_harness(self, runtime: Runtime, endpoint: Endpoint) -> RolloutError | None:
        environment, task = self._environment, self._task
        try:
            with attributed(HarnessError, "harness"):
                job = Job(
                    endpoint=Endpoint(runtime.url_for(endpoint.base_url), endpoint.api_key, endpoint.model),
                    messages=task.messages(environment.system_prompt),
                    task=task,
                    runtime=runtime,
                )
                result = await environment.harness.run(job)
        except RolloutError as error:
            return error
        return None if result is None or result.is_ok else HarnessError(_describe(result))

    def _session(self, runtime: Runtime) -> Session:
        environment = self._environment
        return Session(
            self.trace,
            model=environment.model,
            sampling=environment.config.sampling,
            endpoint=environment.client.endpoint,
            limits=environment.limits,
            find_stop=self._stop_finder(runtime),
        )

    def _stop_finder(self, runtime: Runtime) -> Any:
        hooks = hooks_of(type(self._task), "stop")
        if not hooks:
            return None

        async def find_stop() -> str | None:
            for hook in hooks:
                with attributed(TaskError, f"stop {hook.name!r}"):
                    if await call_hook(hook, self._task, self._available(runtime), self._environment.hook_threads):
                        return hook.name
            return None

        return find_stop


def _describe(result: ProgramResult) -> str:
    ended = f"exit code {result.exit_code}" if result.exit_code >= 0 else f"killed by signal {-result.exit_code}"
    tail = (result.stderr or result.stdout).strip()[-STDERR_TAIL_CHARS:]
    return f"harness program: {ended}{': ' + tail if tail else ''}"
