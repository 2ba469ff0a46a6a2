"""One attempt at one task, from the runtime's start to its end. A failure is recorded on the trace, never raised."""

import secrets
import signal
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from vfx.authoring.harness import Endpoint, Job, ToolServer
from vfx.authoring.hooks import Hook, call_hook, lifecycle_hook
from vfx.errors import (
    DriftError,
    HarnessError,
    ProviderError,
    RolloutError,
    SandboxError,
    ScoringError,
    TaskError,
    ToolsetError,
    attributed,
)
from vfx.interception.base import Slot
from vfx.interception.rewriting import Intercept, Rewriter
from vfx.interception.session import Session
from vfx.messages import Message
from vfx.runner.environment import Environment
from vfx.runner.plan import PlannedRollout
from vfx.runner.scoring import mark_unscored, score
from vfx.runner.speaking import RolloutUser
from vfx.runner.state import fresh_state
from vfx.runtimes.base import ProgramResult, Runtime, SubprocessSettings
from vfx.runtimes.subprocess import SubprocessRuntime
from vfx.tools.servers import OpenTools
from vfx.trace.record import Agent, ErrorRecord, Span, TaskRef, Trace

__all__ = ["Rollout"]

# Below a folder of its own: the working directory is the program's.
PROMPT_FILE = ".vfx/prompt.txt"

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
        config = environment.config
        trace.state = fresh_state(task)
        async with self._runtime(config.seconds_for("setup", task)) as runtime:
            with self._stage("setup", config.seconds_for("setup", task), TaskError):
                await self._lifecycle("setup", runtime)
                with attributed(HarnessError, "harness setup"):
                    await environment.harness.setup(runtime)
            await self._run_agent(runtime, config.seconds_for("rollout", task))
            with self._stage("finalize", config.seconds_for("finalize", task), TaskError):
                await self._lifecycle("finalize", runtime)
            with self._stage("scoring", config.seconds_for("scoring", task), ScoringError):
                available = {**self._available(runtime), **environment.judging.available(task, trace)}
                await score(task, trace, available, environment.hook_threads)

    @asynccontextmanager
    async def _runtime(self, seconds: float | None) -> AsyncGenerator[SubprocessRuntime]:
        runtime = self._environment.create_runtime(self._task)
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
        return {"trace": self.trace, "runtime": runtime, "task": self._task, "state": self.trace.state}

    async def _lifecycle(self, name: str, runtime: Runtime) -> None:
        hook = lifecycle_hook(type(self._task), name)
        if hook is not None:
            await call_hook(hook, self._task, self._available(runtime), self._environment.hook_threads)

    @asynccontextmanager
    async def _tools(self, runtime: SubprocessRuntime, slot: Slot) -> AsyncGenerator[OpenTools]:
        """The rollout's tool servers; the body is cancelled when one of them dies.

        Raises:
            ToolsetError: One could not be started, or has died.
        """
        environment, task = self._environment, self._task
        tools = OpenTools()
        async with AsyncExitStack() as stack:
            if environment.tools.names_for(task):
                with self._stage("tools", environment.config.seconds_for("setup", task), ToolsetError, flag="setup"):
                    opened = environment.tools.opened(task, runtime, (slot.state_url, slot.state_key))
                    tools = await stack.enter_async_context(opened)
            with tools.watched():
                yield tools
        if tools.death is not None:
            self.trace.stop_condition = "toolset_error"
            raise ToolsetError(tools.death)

    async def _run_agent(self, runtime: SubprocessRuntime, seconds: float | None) -> None:
        """Run the program, and tell a clean end from a failure and from a failure's true cause."""
        trace = self.trace
        session = self._session(runtime)
        started = time.time()
        trace.timing["agent"] = Span(started)
        failure: RolloutError | None = None
        try:
            async with (
                self._environment.interception.acquire(session) as slot,
                self._tools(runtime, slot) as tools,
            ):
                with anyio.move_on_after(seconds) as deadline:
                    endpoint = Endpoint(slot.base_url, slot.api_key, session.model)
                    failure = await self._run_harness(runtime, endpoint, tools.servers, session)
        finally:
            session.close()
            trace.timing["agent"] = Span(started, time.time())
        if deadline.cancelled_caught:
            text = f"harness timeout: it had not ended after {seconds:g} s (--timeout.rollout)"
            failure = HarnessError(text, ended="timeout")
            if trace.num_turns and trace.stop_condition is None:
                # What it reached until then is scored.
                trace.stop_condition = "timeout"
        has_drifted = isinstance(session.error, DriftError)
        if trace.stop_condition is not None and not has_drifted:
            return
        # A program may do without an answer of the provider; what we refused, or a hook broke, is no clean end.
        is_ours = session.error is not None and (has_drifted or not isinstance(session.error, ProviderError))
        if session.error is not None and (failure is not None or not trace.num_turns or is_ours):
            trace.stop_condition = f"{session.error.kind}_error"
            raise session.error
        if failure is None and trace.calls and not trace.num_turns:
            # One that asked nothing may have nothing to ask. One that went away before its answer has done nothing.
            failure = HarnessError("harness: it ended without waiting for an answer to any call", ended="no_answer")
        if failure is not None:
            trace.stop_condition = failure.ended if isinstance(failure, HarnessError) else None
            raise failure

    async def _run_harness(
        self, runtime: Runtime, endpoint: Endpoint, tools: Mapping[str, ToolServer], session: Session
    ) -> RolloutError | None:
        environment, task = self._environment, self._task
        user = self._user(runtime, session)
        try:
            with attributed(HarnessError, "harness"):
                messages = task.messages(environment.system_prompt)
                job = Job(
                    endpoint=Endpoint(runtime.url_for(endpoint.base_url), endpoint.api_key, endpoint.model),
                    messages=messages if user is None else await user.opened(messages),
                    task=task,
                    runtime=runtime,
                    tools=tools,
                    user=user,
                )
                if environment.harness.needs_prompt_file:
                    await runtime.write(PROMPT_FILE, job.prompt)
                    job = replace(job, prompt_file=str(await runtime.workdir() / PROMPT_FILE))
                result = await environment.harness.run(job)
        except RolloutError as error:
            return error
        if result is None or (result.is_ok and result.exceeded is None):
            return None
        return _failure(result, environment.config.runtime_for(task))

    def _session(self, runtime: Runtime) -> Session:
        environment = self._environment
        return Session(
            self.trace,
            model=environment.model,
            sampling=environment.config.sampling,
            endpoint=environment.client.endpoint,
            limits=environment.limits,
            find_stop=self._stop_finder(runtime),
            rewriter=self._rewriter(runtime),
        )

    def _user(self, runtime: Runtime, session: Session) -> RolloutUser | None:
        environment, task = self._environment, self._task
        if environment.user is None or task.user is None:
            return None
        return RolloutUser(
            environment.user,
            task,
            self.trace,
            self._available(runtime),
            environment.hook_threads,
            environment.user_asker,
            session.has_turns_left,
        )

    def _rewriter(self, runtime: Runtime) -> Rewriter | None:
        intercepts = [
            Intercept(hook.name, hook.direction, partial(self._intercept, hook, runtime))
            for hook in self._task.hooks("intercept")
        ]
        return Rewriter(intercepts, self.trace) if intercepts else None

    async def _intercept(self, hook: Hook, runtime: Runtime, message: Message) -> Any:
        available = {**self._available(runtime), "message": message}
        with attributed(TaskError, hook.label):
            return await call_hook(hook, self._task, available, self._environment.hook_threads)

    def _stop_finder(self, runtime: Runtime) -> Any:
        hooks = self._task.hooks("stop")
        if not hooks:
            return None

        async def find_stop() -> str | None:
            for hook in hooks:
                with attributed(TaskError, f"stop {hook.name!r}"):
                    if await call_hook(hook, self._task, self._available(runtime), self._environment.hook_threads):
                        return hook.name
            return None

        return find_stop


def _failure(result: ProgramResult, limits: SubprocessSettings) -> HarnessError:
    tail = (result.stderr or result.stdout).strip()[-STDERR_TAIL_CHARS:]
    if result.exceeded == "memory":
        ended, how = (
            "out_of_memory",
            f"out of memory: it held more than {limits.memory:g} GB (--harness.runtime.memory)",
        )
    elif result.exceeded == "cpu":
        how = f"it used more than {limits.cpu_seconds:g} s of CPU time (--harness.runtime.cpu-seconds)"
        ended = "cpu_limit"
    elif result.exit_code < 0:
        ended, how = "killed", f"killed by {_signal_name(-result.exit_code)}"
    else:
        ended, how = "crash", f"exit code {result.exit_code}"
    cut = " (its beginning is cut)" if result.is_cut else ""
    return HarnessError(f"harness program: {how}{f'; the end of its output{cut}: {tail}' if tail else ''}", ended=ended)


def _signal_name(signum: int) -> str:
    if signum == signal.SIGKILL:
        return "SIGKILL, which vfx did not send; the system does when it is out of memory"
    try:
        return signal.Signals(signum).name
    except ValueError:  # Real-time signals have numbers only.
        return f"signal {signum}"
