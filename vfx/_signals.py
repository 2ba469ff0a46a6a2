"""What SIGINT and SIGTERM do to this process. Imports only the standard library: installed by the program's first line.

Until a command listens, nothing has been started and a signal ends the process at once. From then on a signal wakes the
listener through a socket; only when the event loop has not answered for a second, because someone's code blocks it, is
an exception raised inside that code.
"""

import inspect
import os
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType

__all__ = ["BlockedLoop", "SignalInbox", "exit_code", "inbox"]

PATIENCE_S = 1.0
HANDLED = (signal.SIGINT, signal.SIGTERM)
# Ignored by default and hardly used, so that a stray one does no harm.
BREAK_IN = signal.SIGURG


class BlockedLoop(BaseException):
    """Raised inside code that keeps a signal from being answered; no Exception, as no hook should handle it."""


def exit_code(signum: int) -> int:
    """What a shell reports for a process ended by `signum`: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + signum


class SignalInbox:
    """The signals that this process has received, for one listener at a time."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._taken = 0
        self._listener: tuple[socket.socket, socket.socket] | None = None
        self._insister: tuple[int, int] | None = None

    def install(self) -> None:
        """Handle SIGINT and SIGTERM from now on.

        Raises:
            ValueError: When called outside the main thread.
        """
        for signum in HANDLED:
            signal.signal(signum, self._receive)
        signal.signal(BREAK_IN, self._break_in)

    def open(self) -> socket.socket:
        """Start listening; the socket returned becomes readable when a signal has come. End with `close`."""
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.settimeout(0)
        self._insister = os.pipe()
        # Started here and not by the handler: a handler may run while the main thread holds threading's own locks.
        threading.Thread(target=self._insist, args=(self._insister[0],), daemon=True, name="vfx signals").start()
        self._listener = (reader, writer)
        return reader

    def close(self) -> None:
        """Stop listening: from now on a signal ends the process at once again."""
        listener, self._listener = self._listener, None
        insister, self._insister = self._insister, None
        for end in listener or ():
            end.close()
        if insister:
            os.close(insister[1])

    def take(self) -> list[int]:
        """The signals that came since the last call, oldest first."""
        if self._listener:
            with suppress(BlockingIOError):
                self._listener[0].recv(4096)
        fresh = self._received[self._taken :]
        self._taken += len(fresh)
        return fresh

    def _receive(self, signum: int, _frame: FrameType | None) -> None:
        if self._listener is None or self._insister is None:
            os.write(2, f"vfx: {signal.Signals(signum).name}: stopped; nothing was running\n".encode())
            os._exit(exit_code(signum))
        self._received.append(signum)
        with suppress(BlockingIOError):  # A full buffer means that the listener has been woken already.
            self._listener[1].send(b"!")
        os.write(self._insister[1], b"!")

    def _insist(self, pipe: int) -> None:
        """In a thread of its own: break into whatever keeps a signal unanswered."""
        with open(pipe, "rb", buffering=0) as wake_ups:
            while wake_ups.read(1):
                received = len(self._received)
                while self._is_unanswered(received):
                    threading.Event().wait(PATIENCE_S)
                    if self._is_unanswered(received):
                        signal.pthread_kill(threading.main_thread().ident or 0, BREAK_IN)

    def _is_unanswered(self, received: int) -> bool:
        return self._taken < received and self._listener is not None

    def _break_in(self, _signum: int, frame: FrameType | None) -> None:
        # Only inside a task: there it ends that task; raised in the loop's own code it would end the loop.
        while frame is not None and not frame.f_code.co_flags & inspect.CO_COROUTINE:
            frame = frame.f_back
        if frame is not None and self._taken < len(self._received):
            raise BlockedLoop(f"the event loop had not answered a signal for {PATIENCE_S:g} s")


inbox = SignalInbox()
