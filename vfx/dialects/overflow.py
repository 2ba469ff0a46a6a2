"""Tells a prompt that is too long for the model from other refusals.

One list for all dialects, since gateways answer in one dialect with the words of another.
"""

__all__ = ["is_context_overflow", "tells_overflow"]

# What llama.cpp, vLLM, SGLang, OpenAI, Anthropic and their gateways say.
_CODES = ("context_length_exceeded", "exceed_context_size_error")
_PHRASES = (
    "maximum context length",
    "context length exceeded",
    "exceeds the available context size",
    "exceeds the context window",
    "exceed context limit",
    "prompt is too long",
)
EXCERPT = 65536


def is_context_overflow(status: int, body: bytes) -> bool:
    """True when a provider refused because the prompt is longer than the model's context."""
    return status in (400, 413) and tells_overflow(body[:EXCERPT].decode("utf-8", "replace"))


def tells_overflow(text: str) -> bool:
    """True when an error's text names that reason."""
    lowered = text.lower()
    return any(code in lowered for code in _CODES) or any(phrase in lowered for phrase in _PHRASES)
