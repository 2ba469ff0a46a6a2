"""The dialects that the interception speaks, by route."""

from collections.abc import Mapping

from vfx.dialects import anthropic, chat, responses
from vfx.dialects.anthropic_stream import AnthropicAssembler
from vfx.dialects.base import Dialect
from vfx.dialects.chat_stream import ChatAssembler
from vfx.dialects.fields import as_count
from vfx.dialects.responses_stream import ResponsesAssembler

__all__ = ["ANTHROPIC", "CHAT", "DIALECTS", "RESPONSES"]

CHAT = Dialect(
    answer="a chat completion",
    route=chat.ROUTE,
    path="chat/completions",
    read_prompt=chat.read_prompt,
    read_completion=chat.read_completion,
    read_sampling=chat.read_sampling,
    impose=chat.impose,
    assemble=lambda body: ChatAssembler(as_count(body.get("n")) or 1),
    error_body=chat.error_body,
    independent="messages",
)
RESPONSES = Dialect(
    answer="a response",
    route=responses.ROUTE,
    path="responses",
    read_prompt=responses.read_prompt,
    read_completion=responses.read_completion,
    read_sampling=responses.read_sampling,
    impose=responses.impose,
    assemble=lambda _: ResponsesAssembler(),
    error_body=chat.error_body,
    read_earlier=responses.read_earlier,
    resolve=responses.resolve,
    extend=responses.extend,
    not_imposed=frozenset({"seed", "stop"}),
)
ANTHROPIC = Dialect(
    answer="a message",
    route=anthropic.ROUTE,
    path="messages",
    read_prompt=anthropic.read_prompt,
    read_completion=anthropic.read_completion,
    read_sampling=anthropic.read_sampling,
    impose=anthropic.impose,
    assemble=lambda _: AnthropicAssembler(),
    error_body=anthropic.error_body,
    independent="messages",
    not_imposed=frozenset({"seed"}),
)

DIALECTS: Mapping[str, Dialect] = {dialect.route: dialect for dialect in (CHAT, RESPONSES, ANTHROPIC)}
