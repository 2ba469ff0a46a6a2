from collections.abc import AsyncGenerator

import pytest

from tests.interception.stage import staged
from tests.support.provider import Reply

pytestmark = pytest.mark.anyio


async def test_status_that_no_library_knows_becomes_a_bad_gateway() -> None:
    async with staged(Reply(799, body=b"odd")) as stage:
        response = await stage.post()
    assert (response.status_code, response.content) == (502, b"odd")


async def test_body_that_comes_in_pieces_is_read_whole() -> None:
    async with staged() as stage:
        raw = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 300_000 + b'"}]}'

        async def pieces() -> AsyncGenerator[bytes]:
            for start in range(0, len(raw), 70_000):
                yield raw[start : start + 70_000]

        headers = {"Content-Type": "application/json"}
        response = await stage.http.post("/chat/completions", content=pieces(), headers=headers)
        assert response.status_code == 200
        assert stage.provider.requests[0].body == raw


async def test_repeated_headers_of_an_answer_all_pass() -> None:
    reply = Reply(200, {"X-A": "1", "x-a": "2", "Vary": "a", "X-Empty": ""}, b"{}")
    async with staged(reply) as stage:
        response = await stage.post()
    assert response.headers.get_list("x-a") == ["1", "2"]
    assert response.headers["x-empty"] == ""
