"""Conversations through the endpoint while faults are injected: each turn once in its graph, everything given back."""

import gc
import json
import os
import random
from collections import Counter
from pathlib import Path

import anyio
import httpx
import pytest

from tests.interception.stage import new_session, running
from tests.interception.test_soak import read_stream
from tests.support.provider import Reply, Request, completion, scripted_provider, stream
from vfx.clients.base import Client, HttpSettings, create_client
from vfx.clients.chaos import MARK
from vfx.interception.server import Server
from vfx.interception.session import Session

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"),
]

CONVERSATIONS = 12
TURNS = 8
FAULTS = {"429": 0.05, "500": 0.05, "cut": 0.1, "refused": 0.05, "slow": 0.02}


def echo(request: Request) -> Reply:
    body = request.json()
    text = f"echo {body['messages'][-1]['content']}"
    return stream(*text) if body.get("stream") else completion(text)


async def converse(http: httpx.AsyncClient, name: str, turns: int) -> int:
    """Ask in turn, and again, marked, until there is an answer; returns how often there was none."""
    chance, failures = random.Random(name), 0
    messages: list[dict[str, str]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{name}.{turn}"})
        is_stream = chance.random() < 0.5
        raw = json.dumps({"model": "m", "messages": messages, "stream": is_stream}).encode()
        for attempt in range(20):
            headers = {"Content-Type": "application/json", "x-stainless-retry-count": str(attempt)}
            try:
                response = await http.post("/chat/completions", content=raw, headers=headers)
                response.raise_for_status()
            except httpx.HTTPError:
                failures += 1
                continue
            whole = response.text
            answer = read_stream(whole) if is_stream else json.loads(whole)["choices"][0]["message"]["content"]
            break
        else:
            raise AssertionError("never answered")
        assert answer == f"echo {name}.{turn}"
        messages.append({"role": "assistant", "content": answer})
    return failures


async def roll_out(server: Server, number: int, session: Session, turns: int, failures: dict[int, int]) -> None:
    async with (
        server.slot(session) as slot,
        httpx.AsyncClient(
            base_url=slot.base_url, headers={"Authorization": f"Bearer {slot.api_key}"}, trust_env=False, timeout=60
        ) as http,
    ):
        failures[number] = await converse(http, str(number), turns)


def held() -> tuple[int, int]:
    """Descriptors and tasks."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(anyio.get_running_tasks())


async def soak(base_url: str, turns: int) -> tuple[Client, list[Session], dict[int, int]]:
    """Hold all conversations at once; returns the client, their sessions, and how often each was failed."""
    sessions = [new_session() for _ in range(CONVERSATIONS)]
    failures: dict[int, int] = {}
    settings = HttpSettings(
        base_url=base_url, api_key_var=None, chaos=FAULTS, chaos_delay=0.05, max_retries=1, max_retry_wait=0.02
    )
    client = create_client(settings)
    async with client.serving(), running(Server(client)) as server, anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(roll_out, server, number, session, turns, failures)
    return client, sessions, failures


async def test_every_turn_is_once_in_its_graph_and_nothing_is_left() -> None:
    # What the loop opens once for the whole process is no leak.
    async with scripted_provider(default=echo) as upstream:
        await soak(upstream.base_url, 1)
    async with scripted_provider(default=echo) as upstream:
        before = held()
        client, sessions, failures = await soak(upstream.base_url, TURNS)
        with anyio.fail_after(10):
            # The provider sees the end of its connections a moment later.
            while held() != before:
                await anyio.sleep(0.02)
    assert set(client.injected_faults) == set(FAULTS)
    for number, session in enumerate(sessions):
        nodes = session.trace.nodes
        sampled = Counter(node.message.text for node in nodes if node.sampled)
        assert sampled == Counter(f"echo {number}.{turn}" for turn in range(TURNS))
        assert (len(nodes), len(session.trace.graph.leaves())) == (2 * TURNS, 1)
        failed = [call.error.message for call in session.trace.calls if call.error is not None]
        assert len(failed) == failures[number]
        assert all(MARK in message for message in failed)
    assert sum(failures.values()) > 0
