"""Tasksets that ship: `arithmetic`, the demo; `reverse_text`; `file`; `guess_number`, a game in turns."""
