import os
from contextlib import ExitStack

import anyio
import pytest

from vfx.runtimes.pipes import Tail, read_line, readable

pytestmark = pytest.mark.anyio


def pipe(content: bytes) -> int:
    """The end to read from of a pipe that is closed after `content`."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, content)
    os.close(writer)
    return reader


@pytest.mark.parametrize(
    ("content", "text", "is_cut"), [(b"12345", "12345", False), (b"x12345", "12345", True), (b"\xff", "\ufffd", False)]
)
async def test_the_end_is_kept(content: bytes, text: str, is_cut: bool) -> None:
    tail = Tail(5)
    tail.descriptor = pipe(content)
    await tail.collect()
    os.close(tail.descriptor)
    assert (tail.text, tail.is_cut, tail.ended.is_set()) == (text, is_cut, True)


async def test_line_that_does_not_come_is_an_error() -> None:
    descriptor = pipe(b"no end")
    with anyio.fail_after(2), pytest.raises(ConnectionResetError):
        await read_line(descriptor)
    os.close(descriptor)


def test_content_is_there_from_its_beginning() -> None:
    with ExitStack() as stack:
        assert os.read(readable(b"content", stack), 100) == b"content"
        assert os.read(readable(None, stack), 100) == b""
