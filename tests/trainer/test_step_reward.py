"""What a checkpoint is ranked by when nothing was measured on held-out tasks."""

from __future__ import annotations

from group_builders import book, member, take
from patchgym.trainer.group import Group
from patchgym.trainer.step_metrics import step_reward


def group(*totals: float | None) -> Group:
    members = tuple(member(take(book(), 1), total) for total in totals)
    return Group(group_id="g", task_id="t", number=0, members=members)


def test_the_rollouts_of_the_step_come_first() -> None:
    assert step_reward({"reward": 0.0}, [group(1.0, 1.0)]) == 0.0


def test_a_step_without_rollouts_has_the_reward_of_what_it_trained_on() -> None:
    """The last steps take groups from the queue while no new rollout is due."""
    assert step_reward({"reward": None}, [group(1.0, 0.0), group(1.0, None)]) == 2 / 3


def test_without_a_known_reward_there_is_none() -> None:
    assert step_reward({"reward": None}, [group(None)]) is None
