"""Workers judge identical patches once, never keep unknown, and give a slow judge a deadline."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import Reward, RewardConfig, Scorer, ScoreRequest, Verdict, run_workers

pytestmark = pytest.mark.anyio
TASKS = bundled_tasks("train")
FAILED = Verdict(status="unresolved", evidence="report")
UNKNOWN = Verdict(status="unknown", evidence="infra", detail="the daemon went away")


class Judge:
    """Answers with given verdicts in turn, when it is let."""

    def __init__(self, *answers: Verdict) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, bytes]] = []
        self.gate = anyio.Event()

    async def __call__(self, task: Task, diff: bytes) -> Verdict:
        self.calls.append((task.id, diff))
        answer = self.answers.pop(0)
        await self.gate.wait()
        return answer


async def test_identical_patches_are_judged_once() -> None:
    judge = Judge(FAILED, FAILED)
    scorer = Scorer(judge, RewardConfig(), deadline=5)
    rewards: list[Reward] = []

    async def score(task: Task, diff: bytes) -> None:
        rewards.append(await scorer.score(task, diff))

    async with anyio.create_task_group() as group:
        for diff in (b"a", b"a", b"b", b"a"):
            group.start_soon(score, TASKS[0], diff)
        for _ in range(3):
            await checkpoint()
        judge.gate.set()
    assert sorted(diff for _, diff in judge.calls) == [b"a", b"b"]
    assert sorted(reward.shared for reward in rewards) == [False, False, True, True]
    assert (scorer.judged, scorer.shared) == (2, 2)


async def test_an_unknown_verdict_gets_a_new_chance() -> None:
    judge = Judge(UNKNOWN, FAILED)
    judge.gate.set()
    scorer = Scorer(judge, RewardConfig(), deadline=5)
    assert (await scorer.score(TASKS[0], b"a")).total is None
    assert (await scorer.score(TASKS[0], b"a")).total == 0.0


async def test_past_its_deadline_a_verdict_is_unknown() -> None:
    scorer = Scorer(Judge(FAILED), RewardConfig(), deadline=0.01)
    reward = await scorer.score(TASKS[0], b"a")
    assert reward.total is None
    assert "no verdict within" in reward.verdict.detail


async def test_workers_deliver_every_ticket_and_end_with_the_stream() -> None:
    judge = Judge(*[FAILED] * 10)
    judge.gate.set()
    scorer = Scorer(judge, RewardConfig(), deadline=5)
    send, receive = anyio.create_memory_object_stream[ScoreRequest[int]](2)
    delivered: list[int] = []

    async def deliver(ticket: int, reward: Reward) -> None:
        assert reward.total == 0.0
        delivered.append(ticket)

    async def work() -> None:
        await run_workers(receive, deliver, workers=3)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        async with send:
            for number in range(10):
                diff = str(number).encode()
                score = partial(scorer.score, TASKS[0], diff)
                await send.send(ScoreRequest(score=score, ticket=number))
    assert sorted(delivered) == list(range(10))
