import os
import re
import signal
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from hypothesis import given, settings
from hypothesis import strategies as st

from vfx.dashboard.terminal import Terminal, is_usable

SIZE = os.terminal_size((79, 23))


class Emulator:
    """What a terminal shows of the few codes that are used; it has as many rows as it needs."""

    def __init__(self) -> None:
        self.rows: list[str] = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for code, char in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|(.)", text, re.DOTALL):
            if code.endswith("A"):
                self.row -= int(code[:-1])
                assert self.row >= 0
            elif code == "K":
                self.rows[self.row] = self.rows[self.row][: self.column]
            elif code == "J":
                self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]
            elif char == "\r":
                self.column = 0
            elif char == "\n":
                self.row += 1
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif char:
                old = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = old[: self.column] + char + old[self.column + 1 :]
                self.column += 1


@contextmanager
def terminal() -> Generator[tuple[int, TextIO, Terminal]]:
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield ours, stream, Terminal(stream, stream)
    os.close(ours)


def read(descriptor: int) -> str:
    text = b""
    while True:
        try:
            text += os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return text.decode()


def without_last_blanks(rows: list[str]) -> list[str]:
    return "\n".join(rows).rstrip("\n").split("\n")


frames = st.lists(st.text("ab ", max_size=5).map(str.strip), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(frames, st.lists(st.sampled_from(["note", "other"]), max_size=2)), max_size=6))
def test_the_picture_is_the_last_one_below_all_notes(steps: list[tuple[list[str], list[str]]]) -> None:
    emulator, noted, shown = Emulator(), list[str](), list[str]()
    with terminal() as (ours, _, screen):
        with screen:
            for lines, notes in steps:
                for note in notes:
                    screen.note(note)
                screen.paint(lines, SIZE)
                emulator.feed(read(ours))
                noted, shown = noted + notes, lines
                assert without_last_blanks(emulator.rows) == without_last_blanks(noted + shown)
        emulator.feed(read(ours))
    assert [row for row in emulator.rows if row] == noted


def test_only_what_differs_is_written() -> None:
    with terminal() as (ours, _, screen), screen:
        screen.paint(["one", "two", "three"], SIZE)
        read(ours)
        screen.paint(["one", "TWO", "three"], SIZE)
        written = read(ours)
    assert "TWO" in written
    assert "one" not in written
    assert "three" not in written


def test_settings_are_given_back_whatever_is_raised() -> None:
    with terminal() as (ours, stream, screen):
        before = termios.tcgetattr(stream.fileno())
        handler = signal.getsignal(signal.SIGTSTP)
        with suppress(ZeroDivisionError), screen:
            assert termios.tcgetattr(stream.fileno()) != before
            _ = 1 / 0
        assert termios.tcgetattr(stream.fileno()) == before
        assert signal.getsignal(signal.SIGTSTP) == handler
        assert read(ours).endswith("\x1b[?25h")


def test_painting_after_the_end_writes_nothing() -> None:
    with terminal() as (ours, _, screen):
        with screen:
            pass
        read(ours)
        screen.paint(["late"], SIZE)
        assert read(ours) == ""


def test_output_that_is_held_up_keeps_nobody_from_leaving() -> None:
    with terminal() as (_, stream, screen):
        before = termios.tcgetattr(stream.fileno())
        with screen:
            termios.tcflow(stream.fileno(), termios.TCOOFF)
        assert termios.tcgetattr(stream.fileno()) == before
        termios.tcflow(stream.fileno(), termios.TCOON)


def test_pipes_and_closed_streams_are_no_terminals() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        assert not is_usable(stream)
    assert not is_usable(stream)
