"""What people write environments with: `task`, `taskset`, `harness`, `hooks`, `text`.

`registry` finds their classes by what a user names.
"""
