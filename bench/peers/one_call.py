"""A program that makes one call with nothing but a socket: what any program costs at least."""

import os
import socket

base_url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
host, _, path = base_url.removeprefix("http://").partition("/")
name, _, port = host.partition(":")
body = b'{"model": "bench", "messages": [{"role": "user", "content": "Say 7."}]}'
head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nauthorization: Bearer {key}\r\n"
head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
with socket.create_connection((name, int(port))) as connection:
    connection.sendall(head.encode() + body)
    answer = b""
    while not answer.endswith(b"}") and (piece := connection.recv(65536)):
        answer += piece
assert b" 200 " in answer[:15], answer
