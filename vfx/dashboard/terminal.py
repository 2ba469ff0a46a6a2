"""Takes over a terminal for a picture that is repainted in place, and gives it back as it was.

The picture stands below what has been printed and moves down with further lines; the alternate screen is not used, so a
process killed with -9 leaves a hidden cursor and no echo, which `reset` mends, and nothing else. Keys are read only
where standard input is the same person's terminal; signals stay with whoever handles them.
"""

import io
import os
import select
import signal
import sys
import termios
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

__all__ = ["Terminal", "is_usable"]

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ERASE_LINE, ERASE_BELOW = "\x1b[K", "\x1b[J"
GIVE_BACK_S = 0.5
"""How long a terminal whose output is held up (Ctrl-S) may keep us from erasing the picture."""
MAX_NOTES = 1000
LFLAG, CC = 3, 6


def is_usable(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that this process may draw on: there, and not only in the background."""
    descriptor = _terminal_descriptor(stream)
    if descriptor is None:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        # Not the terminal that controls us, so that there is no background either.
        return True


class Terminal:
    """A context: the terminal is ours inside. `paint` may be called from any thread, the rest from the main thread.

    Args:
        stream: Where the picture goes; a terminal.
        keys: Where keys come from; without a terminal there are none.
    """

    def __init__(self, stream: TextIO | None = None, keys: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._out = self._stream.fileno()
        self._keys = _terminal_descriptor(sys.stdin if keys is None else keys)
        self._saved: list[Any] | None = None
        self._is_open = False
        """Whether it may be taken: inside the context, and not while we are being stopped."""
        self._is_held = False
        self._painting = threading.Lock()
        self._shown: Sequence[str] = ()
        self._shown_size = os.terminal_size((0, 0))
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._replaced: dict[str, _Above] = {}
        self._old_stop: Any = None

    @property
    def has_keys(self) -> bool:
        """Whether anyone can type."""
        return self._keys is not None

    @contextmanager
    def open_keys(self) -> Generator[int | None]:
        """A descriptor to wait on and read from, once `may_read`; None when there is none.

        It is one of its own: an event loop makes what it waits on non-blocking, and standard input shares that with the
        other streams, the shell, and whoever uses the terminal after us.
        """
        try:
            descriptor = os.open(os.ttyname(-1 if self._keys is None else self._keys), os.O_RDONLY | os.O_NOCTTY)
        except OSError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @property
    def may_read(self) -> bool:
        """Whether what is typed is meant for us. Reading from the background would stop us."""
        return self._is_held and is_usable(self._stream)

    @property
    def encoding(self) -> str:
        """Of the text that it shows."""
        return self._stream.encoding or "ascii"

    def size(self) -> os.terminal_size:
        """Columns and rows that a picture may use. The last ones stay free: writing there makes terminals scroll."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            return os.terminal_size((79, 23))
        return os.terminal_size((max(1, (size.columns or 80) - 1), max(1, (size.lines or 24) - 1)))

    def __enter__(self) -> "Terminal":
        try:
            if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
                self._old_stop = signal.signal(signal.SIGTSTP, self._suspend)
            self._replace_streams()
            self._is_open = True
            self._hold()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name, ours in self._replaced.items():
            setattr(sys, name, ours.stream)
            ours.finish()
        self._replaced.clear()
        self._release()
        if self._old_stop is not None:
            signal.signal(signal.SIGTSTP, self._old_stop)
            self._old_stop = None

    def note(self, line: str) -> None:
        """Print a line above the picture, with the next painting."""
        self._notes.append(line)

    def paint(self, lines: Sequence[str], size: os.terminal_size) -> None:
        """Show `lines` in place of the picture before them. Blocks as long as the terminal takes no output.

        Args:
            lines: Styled, each narrower than the terminal.
            size: For which they were made.
        """
        with self._painting, suppress(OSError):
            if self._is_open and not self._is_held:
                self._hold()
            if not self._is_held:
                # Continued in the background: the terminal is someone else's, but lines may be printed.
                self._write(self._taken_notes() if self._is_open else "")
            elif is_usable(self._stream):
                self._write(self._erasure(size) + self._taken_notes() + self._difference(lines))
                self._shown, self._shown_size = lines, size

    def _erasure(self, size: os.terminal_size) -> str:
        """What clears the old picture when lines have to go above it, or the terminal has broken its lines anew."""
        if not self._shown or not (self._notes or size != self._shown_size):
            return ""
        rows = len(self._shown)
        if size.columns < self._shown_size.columns:
            # Terminals wrap what has become too long for them.
            rows = sum(1 + _cells(line) // (size.columns + 1) for line in self._shown)
        self._shown = ()
        return f"{_up(min(rows, size.lines) - 1)}\r{ERASE_BELOW}"

    def _taken_notes(self) -> str:
        text = ""
        while self._notes:
            text += self._notes.popleft() + "\r\n"
        return text

    def _difference(self, lines: Sequence[str]) -> str:
        """From the old picture's last line to the new one's, writing only what differs."""
        old = self._shown
        rows = [
            "" if index < len(old) and old[index] == line else "\r" + line + ERASE_LINE
            for index, line in enumerate(lines)
        ]
        surplus = f"\r\n{ERASE_BELOW}{_up(1)}" if len(old) > len(lines) else ""
        return f"{_up(len(old) - 1)}\r" + "\r\n".join(rows) + surplus

    def _hold(self) -> None:
        if not is_usable(self._stream):
            return
        if self._keys is not None:
            with suppress(termios.error):
                self._saved = termios.tcgetattr(self._keys)
                ours: list[Any] = [*self._saved]
                ours[CC] = [*ours[CC]]
                # Keys at once and unseen; Ctrl-C and Ctrl-Z stay signals.
                ours[LFLAG] &= ~(termios.ICANON | termios.ECHO)
                ours[CC][termios.VMIN], ours[CC][termios.VTIME] = 1, 0
                termios.tcsetattr(self._keys, termios.TCSANOW, ours)
        self._is_held = True
        with suppress(OSError):
            self._write(HIDE_CURSOR)

    def _release(self) -> None:
        """Everything as it was; what can't be written within a moment is not."""
        self._is_open = False
        if self._saved is not None and self._keys is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSANOW, self._saved)
            self._saved = None
        was_held, self._is_held = self._is_held, False
        is_ours = self._painting.acquire(timeout=GIVE_BACK_S)
        try:
            if (was_held or self._notes) and is_ours and select.select([], [self._out], [], GIVE_BACK_S)[1]:
                with suppress(OSError):
                    erasure = f"{_up(len(self._shown) - 1)}\r{ERASE_BELOW}" if self._shown else ""
                    self._write(erasure + self._taken_notes() + (SHOW_CURSOR if was_held else ""))
            self._shown = ()
        finally:
            if is_ours:
                self._painting.release()

    def _suspend(self, _signum: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: give the terminal to the shell, stop, and take it again when continued."""
        self._release()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Continued from here on.
        signal.signal(signal.SIGTSTP, self._suspend)
        self._is_open = True

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(self.encoding, "replace"))
        while data:
            data = data[os.write(self._out, data) :]

    def _replace_streams(self) -> None:
        """What anyone prints to the terminal goes above the picture, line by line."""
        for name in ("stderr", "stdout"):
            stream = getattr(sys, name)
            if stream is not None and _terminal_descriptor(stream) is not None:
                self._replaced[name] = _Above(self, stream)
                setattr(sys, name, self._replaced[name])


class _Above(io.TextIOBase):
    """A stream whose whole lines are printed above the picture."""

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self._terminal = terminal
        self.stream = stream
        self._part = ""
        self._writing = threading.Lock()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stream.encoding

    @property
    def buffer(self) -> Any:
        """For bytes there are no lines: they go where they always went."""
        return getattr(self.stream, "buffer", None)

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._writing:
            *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self._terminal.note(line)
        return len(text)

    def finish(self) -> None:
        """Print what no line's end has followed."""
        part, self._part = self._part, ""
        if part:
            self._terminal.note(part)


def _terminal_descriptor(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None and os.isatty(stream.fileno()) else None
    except (OSError, ValueError):
        return None


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


def _cells(line: str) -> int:
    """Columns that a styled line takes, at least: its characters without the escape sequences."""
    cells, is_escape = 0, False
    for char in line:
        if is_escape:
            is_escape = not char.isalpha()
        elif char == "\x1b":
            is_escape = True
        else:
            cells += 1
    return cells
