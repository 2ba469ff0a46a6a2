"""Gives the memory of large bodies back to the system once they are done with."""

import ctypes
import platform
from contextlib import suppress
from functools import cache

__all__ = ["return_large_blocks"]

M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 1 << 20


@cache
def return_large_blocks() -> None:
    """Have glibc map blocks from 1 MiB on by themselves, for the rest of the process; elsewhere do nothing.

    It raises that border by itself, up to 32 MiB, when such a block is freed; later ones then come from an arena that
    keeps them, so that one answer of 30 MiB would stay resident for good.

    Source: mallopt(3), "M_MMAP_THRESHOLD".
    """
    if platform.libc_ver()[0] == "glibc":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
