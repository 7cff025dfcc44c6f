"""Failures have budgets by kind."""

from __future__ import annotations

import pytest

from group_builders import book, member, take
from patchgym.agent import StopReason, Trajectory
from patchgym.trainer.errors import RunStopped
from patchgym.trainer.failures import FailureBudgets, FailureWatch


def ended(reason: StopReason) -> Trajectory:
    return member(take(book(), 1), None, reason).trajectory


def test_each_kind_has_a_budget_of_its_own() -> None:
    watch = FailureWatch(FailureBudgets(environment=0.5, sandbox=0.2))
    for _ in range(15):
        watch.note(ended("submitted"))
    for _ in range(12):
        watch.note(ended("environment_failed"))
    for _ in range(5):
        watch.note(ended("sandbox_failed"))
    assert watch.counts == {"environment": 12, "sandbox": 5}
    with pytest.raises(RunStopped, match=r"failed by sandbox \(failures.sandbox is 20%\)"):
        for _ in range(10):
            watch.note(ended("sandbox_failed"))


def test_the_policys_own_doing_is_no_failure() -> None:
    watch = FailureWatch(FailureBudgets(policy=0, sandbox=0, environment=0, scoring=0))
    reasons: tuple[StopReason, ...] = ("submitted", "context_limit", "turn_limit", "deadline")
    for reason in reasons * 20:
        watch.note(ended(reason))
    assert not watch.counts


def test_a_few_rollouts_say_nothing() -> None:
    watch = FailureWatch(FailureBudgets())
    for _ in range(19):
        watch.note(ended("policy_failed"))
    with pytest.raises(RunStopped, match="100% of the last 20"):
        watch.note(ended("policy_failed"))


def test_a_share_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"failures.policy is 1.5"):
        FailureBudgets(policy=1.5)
