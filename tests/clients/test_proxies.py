"""Calls through proxies and over TLS, as users set them up for other HTTP libraries: by the environment alone.

Each call is made by a process of its own, since certificates are read when the HTTP library is loaded.
"""

import base64
import os
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

HOST = "api.example.invalid"
CALL = """
import sys, anyio
from vfx.clients.base import HttpSettings, ProviderRequest
from vfx.clients.http import HttpClient
from vfx.errors import ProviderError

async def main():
    client = HttpClient(HttpSettings(base_url=sys.argv[1], api_key_var=None, max_retries=0))
    try:
        async with client.serving(), client.send(ProviderRequest("chat/completions", b"{}")) as response:
            print(response.status, response.body.decode())
    except ProviderError as error:
        print("failed:", error)

anyio.run(main)
"""


@dataclass
class Seen:
    """What servers were sent."""

    connects: list[str] = field(default_factory=list[str])
    """Whom a proxy was asked to connect to."""
    paths: list[str] = field(default_factory=list[str])
    passwords: list[str] = field(default_factory=list[str])
    """Of requests to a proxy."""


class Provider(BaseHTTPRequestHandler):
    """Answers every call; as a proxy it plays the host that was asked for, or connects to the port in `target`."""

    protocol_version = "HTTP/1.1"
    seen: Seen
    target = 0
    password: str | None = None

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.paths.append(self.path)
        if self._is_let_in():
            self._answer(200, b"it is 7")

    def do_CONNECT(self) -> None:
        self.seen.connects.append(self.path)
        if not self._is_let_in():
            return
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.target)) as onward:
            pair = {self.connection: onward, onward: self.connection}
            while True:
                for side in select.select([*pair], [], [])[0]:
                    data = side.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    pair[side].sendall(data)

    def _is_let_in(self) -> bool:
        given = self.headers["proxy-authorization"]
        if given is not None:
            self.seen.passwords.append(base64.b64decode(given.removeprefix("Basic ")).decode())
        if self.password is None or self.seen.passwords == [self.password]:
            return True
        self._answer(407, b"")
        return False

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(
    seen: Seen, *, target: int = 0, password: str | None = None, authority: trustme.CA | None = None, host: str = HOST
) -> Generator[int]:
    """A server in a thread; gives its port."""
    attributes = {"seen": seen, "target": target, "password": password}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Played", (Provider,), attributes))
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def call(base_url: str, **variables: str | Path) -> str:
    """What became of a call by a process with these environment variables."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    environment |= {name: str(value) for name, value in variables.items()}
    argv = [sys.executable, "-c", CALL, base_url]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def trusting(authority: trustme.CA, folder: Path) -> Path:
    path = folder / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return path


def test_an_authority_of_the_users_own_is_trusted_by_ssl_cert_file(authority: trustme.CA, tmp_path: Path) -> None:
    with serving(Seen(), authority=authority, host="127.0.0.1") as port:
        answer = call(f"https://127.0.0.1:{port}/v1", SSL_CERT_FILE=trusting(authority, tmp_path))
    assert answer == "200 it is 7"


def test_an_authority_that_nobody_knows_is_not_trusted(authority: trustme.CA) -> None:
    with serving(Seen(), authority=authority, host="127.0.0.1") as port:
        answer = call(f"https://127.0.0.1:{port}/v1")
    assert answer.startswith(f"failed: no secure connection to 127.0.0.1:{port}")


def test_a_certificate_for_another_host_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    with serving(Seen(), authority=authority, host="other.example") as port:
        answer = call(f"https://127.0.0.1:{port}/v1", SSL_CERT_FILE=trusting(authority, tmp_path))
    assert answer.startswith("failed: no secure connection")


def test_tls_goes_through_a_proxy_with_a_password_end_to_end(authority: trustme.CA, tmp_path: Path) -> None:
    through, end = Seen(), Seen()
    with (
        serving(end, authority=authority) as provider,
        serving(through, target=provider, password="me:p@ss/1") as proxy,
    ):
        variables = {"HTTPS_PROXY": f"http://me:p%40ss%2F1@127.0.0.1:{proxy}"}
        answer = call(f"https://{HOST}/v1", SSL_CERT_FILE=trusting(authority, tmp_path), **variables)
    assert answer == "200 it is 7"
    assert through.connects == [f"{HOST}:443"]
    assert (through.paths, end.paths, end.passwords) == ([], ["/v1/chat/completions"], [])


def test_plain_http_goes_through_a_proxy_with_a_password() -> None:
    through = Seen()
    with serving(through, password="me:secret") as proxy:
        answer = call(f"http://{HOST}/v1", HTTP_PROXY=f"http://me:secret@127.0.0.1:{proxy}")
    assert answer == "200 it is 7"
    assert (through.paths, through.passwords) == ([f"http://{HOST}/v1/chat/completions"], ["me:secret"])


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_lets_nobody_in_is_told(scheme: str) -> None:
    with serving(Seen(), password="me:secret") as proxy:
        variables = {f"{scheme.upper()}_PROXY": f"http://127.0.0.1:{proxy}"}
        answer = call(f"{scheme}://{HOST}/v1", **variables)
    assert "407" in answer
    assert "secret" not in answer


def test_what_no_proxy_names_is_asked_directly() -> None:
    through = Seen()
    with serving(through) as proxy:
        answer = call(f"http://{HOST}/v1", HTTP_PROXY=f"http://127.0.0.1:{proxy}", NO_PROXY=".example.invalid")
    assert answer.startswith(f"failed: unknown host: {HOST}")
    assert through.paths == []
