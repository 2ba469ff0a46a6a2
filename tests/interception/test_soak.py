"""Many rollouts at once, each with several sub-agents, against a provider that fails now and then."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import pytest

from tests.interception.stage import new_session, running
from tests.support.provider import Reply, Request, completion, scripted_provider, stream
from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.server import Server
from vfx.interception.session import Session

pytestmark = pytest.mark.anyio

ROLLOUTS = 64
SUB_AGENTS = 3
TURNS = 3
FAULTS = 0.05
CUT: dict[str, Any] = {"finish_reason": None, "usage": None, "is_done": False}


@dataclass(slots=True)
class Provider:
    """Answers each question with its own echo, so that a trace tells what belongs where; one in twenty calls fails."""

    chance: random.Random
    faults: Counter[str] = field(default_factory=Counter[str])

    def answer(self, request: Request) -> Reply:
        body = request.json()
        text = f"echo {body['messages'][-1]['content']}"
        fault = self.chance.choice(("500", "reset", "cut")) if self.chance.random() < FAULTS else None
        if fault is not None:
            self.faults[body["user"]] += 1
        if fault == "500":
            return Reply(500, body=b'{"error":{"message":"overloaded"}}')
        if fault == "reset":
            return Reply(None, ending="reset")
        delay = self.chance.random() * 0.02
        if body.get("stream"):
            return stream(*text, delay=delay, **(CUT if fault else {}))
        return Reply(200, body=b"not json") if fault else completion(text, delay=delay)


@dataclass(slots=True)
class Agent:
    """One sub-agent: asks its questions in turn, and asks again, marked, until it has an answer."""

    http: httpx.AsyncClient
    chance: random.Random
    name: str
    seed: str
    failures: int = 0
    told: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        messages = [{"role": "user", "content": "shared"}, {"role": "assistant", "content": "start"}]
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"{self.name}.{turn}"})
            answer = await self.ask(messages, str(turn))
            self.told.append(answer)
            messages.append({"role": "assistant", "content": answer})

    async def ask(self, messages: list[dict[str, str]], turn: str) -> str:
        is_stream = self.chance.random() < 0.5
        key = {"Idempotency-Key": f"{self.name}.{turn}"} if self.chance.random() < 0.5 else None
        raw = json.dumps({"model": "m", "messages": messages, "user": self.seed, "stream": is_stream}).encode()
        for attempt in range(20):
            mark = key or {"x-stainless-retry-count": str(attempt)}
            headers = {"Content-Type": "application/json", **mark}
            try:
                response = await self.http.post("/chat/completions", content=raw, headers=headers)
                response.raise_for_status()
                return read_stream(response.text) if is_stream else response.json()["choices"][0]["message"]["content"]
            except (httpx.HTTPError, ValueError):
                self.failures += 1
        raise AssertionError("the provider never answered")


def read_stream(text: str) -> str:
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for piece in pieces for choice in piece["choices"])


async def roll_out(server: Server, number: int, session: Session) -> int:
    """One rollout of several sub-agents; returns how often they were failed."""
    agents: list[Agent] = []
    async with (
        server.slot(session) as slot,
        httpx.AsyncClient(
            base_url=slot.base_url, headers={"Authorization": f"Bearer {slot.api_key}"}, trust_env=False, timeout=60
        ) as http,
        anyio.create_task_group() as group,
    ):
        agents += [Agent(http, random.Random(f"{number}.{n}"), str(n), str(number)) for n in range(SUB_AGENTS)]
        for agent in agents:
            group.start_soon(agent.run)
    for agent in agents:
        assert agent.told == [f"echo {agent.name}.{turn}" for turn in range(TURNS)]
    return sum(agent.failures for agent in agents)


async def test_every_logical_turn_is_once_in_its_graph_and_every_failure_has_its_cause() -> None:
    provider = Provider(random.Random(5))
    sessions = [new_session() for _ in range(ROLLOUTS)]
    failures: dict[int, int] = {}
    async with scripted_provider(default=provider.answer) as upstream:
        client = HttpClient(HttpSettings(base_url=upstream.base_url, api_key_var=None, max_retries=0))
        async with client.serving(), running(Server(client)) as server, anyio.create_task_group() as group:

            async def run(number: int) -> None:
                failures[number] = await roll_out(server, number, sessions[number])

            for number in range(ROLLOUTS):
                group.start_soon(run, number)
    assert sum(provider.faults.values()) > ROLLOUTS * SUB_AGENTS * TURNS * FAULTS / 3
    for number, session in enumerate(sessions):
        nodes = session.trace.nodes
        sampled = Counter(node.message.text for node in nodes if node.sampled)
        assert sampled == Counter(f"echo {n}.{turn}" for n in range(SUB_AGENTS) for turn in range(TURNS))
        # Shared beginnings once, then one node for each question and each answer.
        assert len(nodes) == 2 + SUB_AGENTS * TURNS * 2
        assert len(session.trace.graph.leaves()) == SUB_AGENTS
        failed = [call for call in session.trace.calls if call.error is not None]
        assert len(failed) == provider.faults[str(number)] == failures[number]
        assert {call.error.kind for call in failed if call.error} <= {"provider"}
        assert session.trace.num_turns == SUB_AGENTS * TURNS
        assert session.trace.usage.output_tokens == 3 * SUB_AGENTS * TURNS
