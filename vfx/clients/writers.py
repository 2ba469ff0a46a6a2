"""The writers of all dialects."""

from collections.abc import Mapping

from vfx.clients.answers import Writer
from vfx.clients.anthropic_answers import ANTHROPIC_WRITER
from vfx.clients.chat_answers import CHAT_WRITER
from vfx.clients.responses_answers import RESPONSES_WRITER
from vfx.dialects.routes import ANTHROPIC, CHAT, RESPONSES

__all__ = ["WRITERS"]

WRITERS: Mapping[str, Writer] = {
    CHAT.path: CHAT_WRITER,
    RESPONSES.path: RESPONSES_WRITER,
    ANTHROPIC.path: ANTHROPIC_WRITER,
}
"""By the path of a request."""
