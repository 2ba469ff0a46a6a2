import json
from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from tests.interception.stage import BODY, new_session, staged
from tests.support.provider import completion
from vfx.interception.session import Limits

pytestmark = pytest.mark.anyio

LIMIT = 1000
LARGE = json.dumps({**BODY, "padding": "x" * LIMIT}).encode()
HEADERS = {"Content-Type": "application/json"}


async def pieces(raw: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(raw), 100):
        await anyio.lowlevel.checkpoint()
        yield raw[start : start + 100]


# A bound


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "where"), [("/chat/completions", ("error", "message")), ("/messages", ("error", "message"))]
)
async def test_a_body_beyond_the_bound_is_refused_and_not_sent(
    is_chunked: bool, path: str, where: tuple[str, str]
) -> None:
    async with staged(max_body_bytes=LIMIT) as stage:
        content = pieces(LARGE) if is_chunked else LARGE
        response = await stage.http.post(path, content=content, headers=HEADERS)
        assert stage.provider.requests == []
    assert (response.status_code, response.headers["x-should-retry"]) == (413, "false")
    assert response.json()[where[0]][where[1]] == "the request has more than 1000 bytes (--interception.max-body-bytes)"
    assert str(stage.session.error) == "the request has more than 1000 bytes (--interception.max-body-bytes)"
    assert stage.call.error is not None


async def test_a_body_at_the_bound_passes() -> None:
    raw = json.dumps(BODY).encode()
    async with staged(max_body_bytes=len(raw)) as stage:
        assert (await stage.post(raw)).status_code == 200
        assert (await stage.post(raw + b" ")).status_code == 413
        assert (await stage.http.post("/chat/completions", content=pieces(raw), headers=HEADERS)).status_code == 200


async def test_a_refused_body_takes_no_turn_and_the_connection_goes_on() -> None:
    session = new_session(limits=Limits(max_turns=1))
    async with staged(max_body_bytes=LIMIT, session=session) as stage:
        assert (await stage.post(LARGE)).status_code == 413
        assert (await stage.post()).status_code == 200
    assert session.error is None
    assert session.trace.num_turns == 1


# Size


async def test_60_mib_go_up_and_30_mib_come_back_while_a_small_call_passes() -> None:
    images = [f"{number}" + "A" * (5 << 20) for number in range(12)]
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}} for image in images]
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
    reply = completion("y" * (30 << 20), delay=0.2)
    async with staged(default=reply) as stage:
        slowest = 0.0

        async def ask_for_models() -> None:
            nonlocal slowest
            while not is_over:
                started = anyio.current_time()
                response = await stage.http.get(stage.slot.base_url.removesuffix("/v1") + "/health")
                assert response.status_code == 200
                slowest = max(slowest, anyio.current_time() - started)

        is_over, response = False, None
        async with anyio.create_task_group() as group:
            group.start_soon(ask_for_models)
            response = await stage.post(raw)
            is_over = True
        assert stage.provider.requests[0].body == raw
    assert response is not None
    assert response.content == reply.body
    assert stage.session.trace.num_turns == 1
    assert slowest < 5
