"""Tasksets that ship: `arithmetic`, the demo; `reverse_text`."""
