"""Builders of groups for tests."""

from __future__ import annotations

from patchgym.agent import Completion, Observation, StopReason, Trajectory, Turn
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import Reward, Verdict
from patchgym.trainer.group import GroupBook, Member, WorkItem

TASKS = bundled_tasks("train")


def book(size: int = 2, retries: int = 1) -> GroupBook:
    def task(number: int) -> Task:
        return TASKS[number % len(TASKS)]

    return GroupBook(task, size=size, seed=7, retries=retries)


def member(
    item: WorkItem, total: float | None, reason: StopReason = "submitted", version: int = 0
) -> Member:
    completion = Completion(tokens=(5,), logprobs=(-0.5,), policy_version=version, finish="eos")
    turn = Turn(
        context=(1, 2),
        completion=completion,
        text="x",
        observations=(Observation(kind="format_error", text="", done=False),),
    )
    trajectory = Trajectory(
        rollout_id=item.rollout_id,
        task_id=item.task.id,
        seed=item.seed,
        turns=(turn,),
        stop_reason=reason,
    )
    verdict = Verdict(status="unresolved", evidence="report")
    return Member(trajectory=trajectory, reward=Reward(total=total, scores=(), verdict=verdict))


def take(owner: GroupBook, live: int) -> WorkItem:
    item = owner.next_item(live)
    assert item is not None
    return item
