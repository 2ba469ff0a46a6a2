import pytest

from vfx.clients.tapes.pieces import Copied, Pieces

pytestmark = pytest.mark.anyio


async def test_pieces_come_in_their_lengths() -> None:
    assert [piece async for piece in Pieces(b"abcdef", [1, 3, 2])] == [b"a", b"bcd", b"ef"]
    assert [piece async for piece in Pieces(b"", [])] == []


async def test_what_passes_is_kept_as_far_as_it_was_taken() -> None:
    kept: list[bytes] = []
    async for piece in Copied(Pieces(b"abc", [1, 1, 1]), kept):
        if piece == b"b":
            break
    assert kept == [b"a", b"b"]
