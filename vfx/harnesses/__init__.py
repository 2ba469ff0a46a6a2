"""Harnesses that ship: `chat`, a conversation in this process; `command`, any program; `presets` over it.

`program` is for programs to import, not for vfx.
"""
