import socket

import anyio
import pytest

from vfx._http_server import listen

pytestmark = pytest.mark.anyio


async def test_the_second_piece_of_an_answer_is_not_held_back() -> None:
    with listen() as listener, socket.create_connection(listener.getsockname()):
        await anyio.wait_readable(listener)
        with listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_port_that_is_taken_is_told() -> None:
    with listen() as listener, pytest.raises(OSError, match="in use"):
        listen(listener.getsockname()[1])
