"""How many files and sockets this process may have open, and how many rollouts that carries."""

import resource
from contextlib import suppress

__all__ = ["raise_limit", "rollouts_within"]

# The chat harness holds 3 (both ends of its connection, and the one to the provider), a program its pipes as well.
EACH_ROLLOUT = 8
SHARED = 64
"""Listeners, files of the run, libraries."""


def raise_limit() -> int:
    """Raise the soft limit, which is low by tradition and not for a reason, as far as is allowed.

    Returns:
        The limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft


def rollouts_within(limit: int, wanted: int) -> int:
    """How many rollouts may run at a time, at most `wanted` and at least one."""
    if limit == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (limit - SHARED) // EACH_ROLLOUT))
