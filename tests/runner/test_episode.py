from collections.abc import Sequence

import anyio
import pytest

from tests.support.traces import make_trace
from vfx.authoring.hooks import group_reward
from vfx.authoring.task import Task
from vfx.authoring.threads import HookThreads
from vfx.errors import ProviderError
from vfx.runner.episode import Episode, Episodes
from vfx.runner.plan import Plan
from vfx.runner.resume import Earlier
from vfx.trace.record import Trace

pytestmark = pytest.mark.anyio


class Race(Task):
    @group_reward
    async def rank(self, traces: Sequence[Trace]) -> list[float]:
        return [float(trace.rollout) for trace in traces]


class Slow(Task):
    @group_reward
    async def never(self, traces: Sequence[Trace]) -> list[float]:
        await anyio.sleep(30)
        return [0.0 for _ in traces]


async def test_an_episode_is_complete_when_its_last_rollout_has_ended() -> None:
    plan = Plan([(Race(prompt="x"), 0)], 2)
    episodes = Episodes(plan, Earlier())
    first, second = plan
    assert episodes.end(first, make_trace()) is None
    assert len(episodes.waiting) == 1
    episode = episodes.end(second, make_trace(rollout=1))
    assert episode is not None
    assert [trace.rewards["rank"].score for trace in await episode.score(HookThreads(), None)] == [0.0, 1.0]
    episodes.close(episode)
    assert episodes.waiting == []


async def test_errored_rollouts_are_not_compared_and_one_alone_has_no_rank() -> None:
    plan = Plan([(Race(prompt="x"), 0)], 2)
    episodes = Episodes(plan, Earlier())
    first, second = plan
    episodes.end(first, make_trace(error=ProviderError("gone")))
    episode = episodes.end(second, make_trace(rollout=1, rewards={"rank": None}))
    assert episode is not None
    [trace] = await episode.score(HookThreads(), None)
    assert trace.rewards["rank"].score is None
    assert trace.errors == []


async def test_members_of_an_earlier_launch_take_part() -> None:
    plan = Plan([(Race(prompt="x"), 0)], 3)
    key = plan.tasks[0][0].key
    earlier = Earlier(pending={(key, 0): [make_trace(key, rollout=0), make_trace(key, rollout=2)]})
    episodes = Episodes(plan, earlier)
    assert list(episodes.complete()) == []
    episode = episodes.end(list(plan)[1], make_trace(key, rollout=1))
    assert episode is not None
    assert [trace.rollout for trace in await episode.score(HookThreads(), None)] == [0, 1, 2]
    episodes.close(episode)
    assert all(earlier.has_ended(planned.identity) for planned in plan if planned.rollout != 1)
    assert episodes.waiting == []


async def test_a_group_that_had_ended_before_is_complete_at_once() -> None:
    plan = Plan([(Race(prompt="x"), 0), (Race(prompt="y"), 0)], 2)
    key = plan.tasks[1][0].key
    episodes = Episodes(plan, Earlier(pending={(key, 0): [make_trace(key, rollout=n) for n in range(2)]}))
    [episode] = episodes.complete()
    assert episode.task.prompt == "y"


async def test_group_rewards_have_a_deadline() -> None:
    episode = Episode(Slow(prompt="x"), ("k", 0), 0, [make_trace(rollout=n) for n in range(2)])
    traces = await episode.score(HookThreads(), 0.01)
    assert ["--timeout.scoring" in trace.errors[0].message for trace in traces] == [True, True]
