"""What a provider answers agents of other people with: one shell command, and a last word once they have run it."""

import json
from typing import Any

from tests.support.native_replies import message, message_stream, response_stream
from tests.support.provider import Request
from tests.support.replies import Reply, completion

__all__ = ["COMMAND", "USAGE", "bash_call", "solve"]

COMMAND = "cat add.py; sed -i 's/a - b/a + b/' add.py"
"""Shows the file of the task and corrects it."""
USAGE = (50, 7)
"""Tokens of each answer's prompt, and of the answer."""
LAST_COMMAND = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def solve(request: Request) -> Reply:
    """The next answer in any of the three dialects; all else is not found, as at a provider that has little."""
    path = request.path.partition("?")[0]
    if path == "/v1/responses":
        return _codex(request.json())
    if path == "/v1/messages":
        return _claude(request.json())
    if path == "/v1/chat/completions":
        return _mini(request.json())
    return Reply(404, {"Content-Type": "application/json"}, b'{"error":{"message":"no such path"}}')


def bash_call(command: str) -> dict[str, Any]:
    """A call of a tool `bash` in a chat completion."""
    arguments = json.dumps({"command": command})
    return {"id": "call-1", "type": "function", "function": {"name": "bash", "arguments": arguments}}


def _codex(body: dict[str, Any]) -> Reply:
    if any(item.get("type") == "function_call_output" for item in body["input"]):
        return response_stream("Fixed.", usage=USAGE)
    arguments = json.dumps({"cmd": COMMAND})
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"}
    return response_stream({**call, "name": "exec_command", "arguments": arguments}, usage=USAGE)


def _claude(body: dict[str, Any]) -> Reply:
    usage: dict[str, Any] = dict(zip(("input_tokens", "output_tokens"), USAGE, strict=True))
    answer = message_stream if body.get("stream") else message
    blocks = [block for turn in body["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
    if any(block["type"] == "tool_result" for block in blocks):
        return answer("Fixed.", usage=usage)
    arguments = {"command": COMMAND, "description": "Fix it"}
    return answer({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": arguments}, usage=usage)


def _mini(body: dict[str, Any]) -> Reply:
    was_run = any(message["role"] == "tool" for message in body["messages"])
    call = bash_call(LAST_COMMAND if was_run else COMMAND)
    return completion("THOUGHT", tool_calls=[call], finish_reason="tool_calls", usage=USAGE)
