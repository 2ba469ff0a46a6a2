"""Ask the model from a program, with nothing but the standard library: `from program import ask`.

Copy this file beside your program, or have vfx do so: `--harness.files vfx/harnesses/program.py`. It loads in a few
milliseconds, where an SDK takes some hundred, and talks to the endpoint that OPENAI_BASE_URL names.
"""

import json
import os
import socket
from typing import Any

__all__ = ["ask", "complete"]


def ask(messages: str | list[dict[str, Any]], **options: Any) -> str:
    """The model's answer to a conversation as text; "" when it has none, as in a turn that only calls tools.

    Args:
        messages: In the form of chat completions; a text is one message of the user.
        options: More fields of the request, such as `temperature` or `tools`.

    Raises:
        OSError: The endpoint answered with an error, or not at all.
    """
    return complete(messages, **options)["choices"][0]["message"]["content"] or ""


def complete(messages: str | list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """The whole chat completion; see `ask`."""
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {"model": os.environ.get("OPENAI_MODEL", ""), **options, "messages": turns}
    status, answer = _post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode())
    if status != 200:
        raise OSError(f"the endpoint answered {status}: {answer.decode('utf-8', 'replace')[:2000]}")
    return json.loads(answer)


def _post(url: str, body: bytes) -> tuple[int, bytes]:
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    host, _, port = place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
    is_secure = scheme == "https"
    connection = socket.create_connection((host.strip("[]"), int(port or (443 if is_secure else 80))))
    if is_secure:
        import ssl  # noqa: PLC0415 - what most programs never need

        connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host.strip("[]"))
    head = (
        # Version 1.0, so that the answer ends with the connection and comes in one piece.
        f"POST /{path} HTTP/1.0\r\nHost: {place}\r\nAuthorization: Bearer {os.environ['OPENAI_API_KEY']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with connection:
        connection.sendall(head.encode("ascii") + body)
        with connection.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            length = None
            while line := stream.readline().strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            answer = stream.read() if length is None else stream.read(length)
    if length is not None and len(answer) < length:
        raise OSError("the answer broke off")
    return status, answer
