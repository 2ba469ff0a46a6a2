"""Harnesses that ship: `chat`, a conversation in this process."""
