"""A toolset whose module starts a thread when it is imported, as some libraries do."""

import threading

import vfx

__all__ = ["Threaded"]

_stopped = threading.Event()
threading.Thread(target=_stopped.wait, daemon=True, name="of the module").start()


class Threaded(vfx.Toolset):
    @vfx.tool
    def threads(self) -> list[str]:
        """The threads of its process."""
        return [thread.name for thread in threading.enumerate()]
