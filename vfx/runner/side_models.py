"""The models of a run beside the evaluated one, and the clients that reach them: equal ones are shared."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from vfx.clients.asking import Asker, ModelSettings, relocated_mistake
from vfx.clients.base import Client, ClientSettings, LocalSettings, create_client
from vfx.errors import Mistake

__all__ = ["SideModels"]

_PROCESS = frozenset({"slots", "threads", "context", "max_tokens"})
"""Options of the embedded model's process; where they are at their defaults, any process will do."""


@dataclass(slots=True)
class _Reached:
    """A client and what it was made from."""

    settings: ClientSettings
    client: Client
    option: str | None
    """Where it was configured first; None = it is the run's own."""


class SideModels:
    """Knows every side model before anything starts, so that what is wrong with it is found in time.

    Args:
        settings: Of the run's own client.
        client: The run's own client, which its owner brings up.
        model: The evaluated model's name; None = none was named, which its owner refuses.
        is_resumed: The run goes on.
        is_recorded: The run's own client answers for every model, from a record.
    """

    def __init__(
        self,
        settings: ClientSettings,
        client: Client,
        model: str | None,
        *,
        is_resumed: bool = False,
        is_recorded: bool = False,
    ) -> None:
        self._is_resumed = is_resumed
        self._is_recorded = is_recorded
        self._own = _Reached(settings, client, None)
        self._model = model
        self._others: list[_Reached] = []
        self._nameless: list[str] = []

    @property
    def clients(self) -> Sequence[Client]:
        """The clients that it brings up."""
        return [reached.client for reached in self._others]

    def add(self, settings: ModelSettings, where: str) -> Asker:
        """Make one known, and get what asks it; only before `serving`.

        Args:
            settings: The model's.
            where: Dotted path of its settings, such as `taskset.task.judges[0]`, for messages.
        """
        option = f"{where}.client"
        wanted = None if self._is_recorded else settings.client
        reached = self._own if wanted is None else self._reach(wanted, option)
        model = settings.model
        if model is None and reached is not self._own:
            model = reached.client.default_model
        model = model or self._model
        if not model and reached is not self._own:
            self._nameless.append(where)
        shown = None if reached is self._own else option
        return Asker(reached.client, model or "", settings.sampling, option=shown)

    def _reach(self, settings: ClientSettings, option: str) -> _Reached:
        for reached in (self._own, *self._others):
            if _is_served_by(settings, reached.settings):
                return reached
        self._others.append(_Reached(settings, create_client(settings, is_resumed=self._is_resumed), option))
        return self._others[-1]

    def mistakes(self) -> Iterator[Mistake]:
        """What keeps one from working and can be known before anything is started."""
        for reached in self._others:
            for mistake in reached.client.mistakes():
                yield relocated_mistake(mistake, reached.option or "")
        for where in self._nameless:
            yield Mistake("no model is named", f"{where}.model", "name one that this client has")

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Up: every client but the run's own.

        Raises:
            RunError: One could not be started; those that had been are taken down again.
        """
        async with AsyncExitStack() as stack:
            for reached in self._others:
                await stack.enter_async_context(reached.client.serving())
            yield


def _is_served_by(wanted: ClientSettings, running: ClientSettings) -> bool:
    """True when a client made from `running` does what `wanted` asks for."""
    if isinstance(wanted, LocalSettings) and isinstance(running, LocalSettings):
        # Not by what was given: a saved configuration gives everything.
        free = [name for name in _PROCESS if getattr(wanted, name) == getattr(LocalSettings(), name)]
        return wanted.model_copy(update={name: getattr(running, name) for name in free}) == running
    return wanted == running
