"""A run that has not begun, for tests of what watches one."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from vfx.authoring.registry import harness_class
from vfx.clients.base import ScriptedSettings
from vfx.runner.config import EvalConfig
from vfx.runner.environment import Environment
from vfx.runner.evaluate import Run
from vfx.runner.plan import make_plan
from vfx.runner.store import RunStore
from vfx.tasksets.arithmetic import Arithmetic

__all__ = ["idle_run"]


@contextmanager
def idle_run(folder: Path, *, size: int = 20) -> Generator[Run]:
    """A run of `size` sums on the scripted client."""
    config = EvalConfig(
        taskset=Arithmetic(id="arithmetic", size=size),
        harness=harness_class("chat")(id="chat"),
        client=ScriptedSettings(),
        model="scripted",
    )
    store = RunStore(folder)
    try:
        yield Run(Environment(config), make_plan(config), store)
    finally:
        store.close()
