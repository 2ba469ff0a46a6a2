"""The log of a run. It tells what happened; that it can't be written must neither end a run nor fill the terminal."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from vfx.errors import RunError

__all__ = ["RunLog"]


class RunLog(logging.Handler):
    """Appends lines to a file. One write each, so that a full disk leaves nothing behind that is tried again."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            RunError: It can't be opened.
        """
        super().__init__()
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(f"{path}: can't be opened: {error.strerror}") from error

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; what the disk has no room for is lost."""
        try:
            line = f"{self.format(record)}\n"
        except Exception:  # noqa: BLE001 - what a library was about to say must not end the run
            self.handleError(record)
            return
        with suppress(OSError):
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Close the file."""
        super().close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
