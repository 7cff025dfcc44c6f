"""Workers deliver every ticket, whatever happens to its scoring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from patchgym.rewards import Reward, ScoreRequest, Verdict, run_workers

pytestmark = pytest.mark.anyio
GOOD = Reward(total=1.0, scores=(), verdict=Verdict(status="resolved", evidence="report"))
Score = Callable[[], Awaitable[Reward]]


async def good() -> Reward:
    return GOOD


async def forever() -> Reward:
    await anyio.sleep_forever()
    raise AssertionError


class Fails:
    """Raises so many times before it answers."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.calls, self._times = 0, times
        self._error = error or ValueError("no luck")

    async def __call__(self) -> Reward:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        return GOOD


async def delivered(*scores: Score, deadline: float | None = None) -> dict[int, Reward]:
    """What three workers deliver by ticket."""
    send, receive = anyio.create_memory_object_stream[ScoreRequest[int]](2)
    rewards: dict[int, Reward] = {}

    async def deliver(ticket: int, reward: Reward) -> None:
        assert ticket not in rewards
        rewards[ticket] = reward

    async def work() -> None:
        await run_workers(receive, deliver, workers=3)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            async with send:
                for ticket, score in enumerate(scores):
                    request = ScoreRequest(score=score, ticket=ticket, deadline=deadline)
                    await send.send(request)
    return rewards


async def test_every_ticket_is_delivered_and_the_workers_end_with_the_stream() -> None:
    assert await delivered(*[good] * 10) == dict.fromkeys(range(10), GOOD)


async def test_a_crash_is_tried_once_more() -> None:
    once = Fails(1)
    assert await delivered(once, good) == {0: GOOD, 1: GOOD}
    assert once.calls == 2


async def test_a_second_crash_is_an_unknown_reward_and_the_others_go_on() -> None:
    group = ExceptionGroup("two", [KeyError("a"), OSError("b")])
    bad, worse = Fails(9), Fails(9, group)
    rewards = await delivered(bad, good, worse, good, good, good)
    assert [rewards[ticket].total for ticket in range(6)] == [None, 1.0, None, 1.0, 1.0, 1.0]
    assert (bad.calls, worse.calls) == (2, 2)
    assert rewards[0].verdict.evidence == "infra"
    assert rewards[0].verdict.detail == "scoring failed 2 times: ValueError: no luck"


async def test_past_its_deadline_a_reward_is_unknown() -> None:
    rewards = await delivered(forever, good, deadline=0.05)
    assert (rewards[0].total, rewards[1].total) == (None, 1.0)
    assert rewards[0].verdict.detail == "not scored within 0.05 s"


async def test_what_deliver_raises_ends_the_workers() -> None:
    send, receive = anyio.create_memory_object_stream[ScoreRequest[int]](2)
    send.send_nowait(ScoreRequest(score=good, ticket=1))

    async def deliver(ticket: int, reward: Reward) -> None:
        raise LookupError("the disk is full")

    with pytest.raises(ExceptionGroup) as problem, anyio.fail_after(60):
        await run_workers(receive, deliver, workers=2)
    assert problem.group_contains(LookupError)
    send.close()


async def test_cancellation_is_no_crash() -> None:
    calls: list[int] = []

    async def waits() -> Reward:
        calls.append(1)
        return await forever()

    async def deliver(ticket: int, reward: Reward) -> None:
        raise AssertionError

    send, receive = anyio.create_memory_object_stream[ScoreRequest[int]](2)
    send.send_nowait(ScoreRequest(score=waits, ticket=1))
    with anyio.move_on_after(0.05) as scope:
        await run_workers(receive, deliver, workers=2)
    assert scope.cancelled_caught and calls == [1]
    send.close()
