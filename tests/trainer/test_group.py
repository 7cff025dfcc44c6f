"""The book of groups: who is rolled out next, when a group is whole, and the staleness bound."""

from __future__ import annotations

from group_builders import TASKS, book, member, take
from patchgym.trainer.group import Group, GroupBook, allowance


def test_a_group_is_whole_when_its_last_member_is_back() -> None:
    owner = book()
    first, second = take(owner, 1), take(owner, 1)
    assert (first.group_id, second.group_id) == ("g00000", "g00000")
    assert owner.next_item(1) is None
    assert owner.finish(second, member(second, 1.0)) is None
    group = owner.finish(first, member(first, 0.0))
    assert isinstance(group, Group)
    assert [m.trajectory.rollout_id for m in group.members] == ["g00000-m0", "g00000-m1"]


def test_equal_rewards_are_dropped_and_another_group_may_open() -> None:
    owner = book()
    first, second = take(owner, 1), take(owner, 1)
    owner.finish(first, member(first, 0.0))
    assert owner.finish(second, member(second, 0.0)) == "no_spread"
    assert owner.state().dropped == {"no_spread": 1}
    assert take(owner, 1).group_id == "g00001"


def test_a_ready_group_counts_against_the_allowance() -> None:
    owner = book()
    for total in (0.0, 1.0):
        item = take(owner, 1)
        owner.finish(item, member(item, total))
    assert owner.next_item(1) is None
    owner.throw_away("stale")
    assert owner.next_item(1) is not None


def test_an_infrastructure_failure_is_retried_on_another_stream() -> None:
    owner = book()
    first, second = take(owner, 1), take(owner, 1)
    assert owner.finish(first, member(first, None, "sandbox_failed")) is None
    again = take(owner, 1)
    assert (again.member, again.attempt) == (first.member, 1)
    assert again.seed != first.seed
    owner.finish(second, member(second, 1.0))
    assert owner.finish(again, member(again, None, "sandbox_failed")) == "too_few"


def test_a_failed_member_stays_out_of_baseline_and_loss() -> None:
    owner = book(size=3, retries=0)
    items = [take(owner, 1) for _ in range(3)]
    owner.finish(items[0], member(items[0], 1.0))
    owner.finish(items[1], member(items[1], None, "context_limit"))
    group = owner.finish(items[2], member(items[2], 0.0))
    assert isinstance(group, Group)
    assert group.rewards() == [1.0, 0.0]
    assert [m.in_loss for m in group.members] == [True, False, True]


def test_staleness_is_that_of_the_oldest_turn_that_is_trained_on() -> None:
    owner = book(size=3, retries=0)
    items = [take(owner, 1) for _ in range(3)]
    owner.finish(items[0], member(items[0], 1.0, version=4))
    owner.finish(items[1], member(items[1], None, "deadline", version=1))
    group = owner.finish(items[2], member(items[2], 0.0, version=3))
    assert isinstance(group, Group)
    assert group.oldest_version == 3


def test_unfinished_groups_of_a_resumed_run_come_first_with_their_own_streams() -> None:
    fresh = book()
    wanted = [take(fresh, 3) for _ in range(6)]
    owner = GroupBook(
        lambda number: TASKS[number], size=2, seed=7, retries=1, reopen=(1,), first_number=5
    )
    assert [take(owner, 2).seed for _ in range(2)] == [wanted[2].seed, wanted[3].seed]
    assert take(owner, 2).group_id == "g00005"


def test_the_allowance_keeps_groups_within_the_staleness_bound() -> None:
    assert allowance(10, per_step=4, max_staleness=0) == 4
    assert allowance(10, per_step=4, max_staleness=1) == 8
    assert allowance(1, per_step=4, max_staleness=1) == 4, "no group without a step to train it"
    assert allowance(0, per_step=4, max_staleness=1) == 0


def test_a_group_that_will_be_too_stale_is_dropped_while_it_is_out() -> None:
    owner = book(size=2)
    first = owner.next_item(2, 0)
    second = owner.next_item(2, 1)
    third = owner.next_item(2, 1)
    assert first and second and third
    assert (first.group_id, third.group_id) == ("g00000", "g00001")
    assert owner.finish(second, member(second, 1.0, version=1)) is None
    assert owner.drop_older(0) == []
    (late,) = owner.drop_older(1)
    assert (late.group_id, late.rollouts) == ("g00000", (first.rollout_id,))
    assert owner.leftover() == [first.rollout_id]
    assert owner.leftover() == []
    assert owner.dropped == {"stale": 1}
    assert owner.finish(first, member(first, 1.0)) is None, "it comes home to nobody"


def test_a_straggler_goes_on_as_a_part_and_keeps_its_stream() -> None:
    owner = book(size=2)
    item = take(owner, 1)
    cut = member(item, None, "straggler", version=4)
    assert owner.finish(item, cut) is None
    take(owner, 1)
    part = take(owner, 1)
    assert part.rollout_id == f"{item.rollout_id}-part1"
    assert (part.seed, part.earlier) == (item.seed, cut.trajectory.turns)
    assert (part.attempt, part.part) == (item.attempt, 1)


def test_a_quorum_makes_do_without_the_rest() -> None:
    owner = book(size=3)
    items = [take(owner, 1) for _ in range(3)]
    for item, total in zip(items[:2], (0.0, 1.0), strict=True):
        assert owner.waiting(2) == []
        assert owner.finish(item, member(item, total)) is None
    (waiting,) = owner.waiting(2)
    assert waiting.rollouts == (items[2].rollout_id,)
    assert owner.waiting(2, older_than=0) == []
    group = owner.close_early(waiting.group_id)
    assert isinstance(group, Group) and len(group.members) == 2
    assert owner.leftover() == [items[2].rollout_id]
