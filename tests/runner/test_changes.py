"""What a replay keeps of its changes; what it does is tested from outside, in tests/cli/test_replay.py."""

import heapq

from vfx.runner.changes import Change


def test_changes_are_ordered_by_size_even_where_tasks_share_a_name() -> None:
    heap = [Change(1.0, "same", 0, None, 1.0)]
    heapq.heappush(heap, Change(1.0, "same", 0, 0.0, None))
    heapq.heappush(heap, Change(0.5, "other", 1, 0.5, 1.0))
    assert heap[0].size == 0.5
