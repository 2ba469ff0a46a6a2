"""Bodies that come in pieces: kept as they pass, and given again as they came.

No generators: one that is left half-read would need clean-up.
"""

from collections.abc import AsyncIterator, Sequence

import anyio.lowlevel

__all__ = ["Copied", "Pieces"]


class Copied:
    """A stream that is kept as it passes."""

    def __init__(self, chunks: AsyncIterator[bytes], pieces: list[bytes]) -> None:
        self._chunks = chunks
        self._pieces = pieces

    def __aiter__(self) -> "Copied":
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._chunks)
        self._pieces.append(piece)
        return piece


class Pieces:
    """A body in the pieces in which it was recorded, with room for others between them."""

    def __init__(self, body: bytes, lengths: Sequence[int]) -> None:
        self._body = body
        self._lengths = iter(lengths)
        self._position = 0

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        length = next(self._lengths, None)
        if length is None:
            raise StopAsyncIteration
        self._position += length
        return self._body[self._position - length : self._position]
