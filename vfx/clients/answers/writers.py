"""The writers of all dialects."""

from collections.abc import Mapping

from vfx.clients.answers.answer import Writer
from vfx.clients.answers.anthropic import ANTHROPIC_WRITER
from vfx.clients.answers.chat import CHAT_WRITER
from vfx.clients.answers.responses import RESPONSES_WRITER
from vfx.dialects.routes import ANTHROPIC, CHAT, RESPONSES

__all__ = ["WRITERS"]

WRITERS: Mapping[str, Writer] = {
    CHAT.path: CHAT_WRITER,
    RESPONSES.path: RESPONSES_WRITER,
    ANTHROPIC.path: ANTHROPIC_WRITER,
}
"""By the path of a request."""
