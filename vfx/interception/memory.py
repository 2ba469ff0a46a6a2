"""How this process treats memory: large blocks go back to the system, and garbage is looked for less often."""

import ctypes
import gc
import platform
from contextlib import suppress
from functools import cache

__all__ = ["collect_less_often", "return_large_blocks"]

M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 1 << 20
# A call leaves many objects and hardly any garbage: with Python's own numbers, looking through them was half its cost.
COLLECTIONS = (10_000, 20, 50)


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


@cache
def collect_less_often() -> None:
    """Look for cyclic garbage less often for the rest of the process, and never among what is there by now.

    Nearly all memory is given back without it: it finds only what refers to itself.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
