"""Rewards from verdicts, worked out by hand."""

from __future__ import annotations

import difflib
import math

import pytest

from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import RewardConfig, Verdict, compose
from patchgym.rewards.patch_size import changed_lines
from patchgym.sandbox import Outcome


@pytest.fixture
def task() -> Task:
    """One with both kinds of tests, and two or more that fail."""
    return next(t for t in bundled_tasks("train") if t.pass_to_pass and len(t.fail_to_pass) > 1)


def verdict(task: Task, *, fixed: int, lost: int = 0) -> Verdict:
    outcomes: dict[str, Outcome] = {}
    for number, test in enumerate(task.fail_to_pass):
        outcomes[test] = "passed" if number < fixed else "failed"
    for number, test in enumerate(task.pass_to_pass):
        outcomes[test] = "failed" if number < lost else "passed"
    done = all(o == "passed" for o in outcomes.values())
    status = "resolved" if done else "unresolved"
    return Verdict(status="resolved" if status == "resolved" else "unresolved",
                   evidence="report", outcomes=outcomes)  # fmt: skip


def total(task: Task, diff: bytes, given: Verdict) -> float | None:
    return compose(task, diff, given, RewardConfig(tests=1.0, patch_size=0.05)).total


def test_gold_earns_one_and_nothing_earns_nothing(task: Task) -> None:
    gold = task.gold_patch.encode()
    assert total(task, gold, verdict(task, fixed=len(task.fail_to_pass))) == 1.0
    assert total(task, b"", Verdict(status="unresolved", evidence="empty_patch")) == 0.0


def test_a_share_of_the_failing_tests_earns_that_share(task: Task) -> None:
    share = 1 / len(task.fail_to_pass)
    assert total(task, task.gold_patch.encode(), verdict(task, fixed=1)) == pytest.approx(share)


def test_a_lost_test_takes_everything(task: Task) -> None:
    lost = verdict(task, fixed=len(task.fail_to_pass), lost=1)
    assert total(task, task.gold_patch.encode(), lost) == 0.0


def test_every_line_past_gold_costs_a_little(task: Task) -> None:
    assert task.files is not None and task.focus is not None
    lines = task.files[task.focus.path].splitlines(keepends=True)
    more = [*lines[:1], "    # one\n", "    # two\n", "    # three\n", "    return 0\n"]
    longer = "".join(difflib.unified_diff(lines, more, "a/x.py", "b/x.py"))
    excess = changed_lines(longer.encode()) - changed_lines(task.gold_patch.encode())
    value = total(task, longer.encode(), verdict(task, fixed=len(task.fail_to_pass)))
    assert excess == 3
    assert value == pytest.approx(1.0 - 0.05 * (1 - math.exp(-0.3)))


def test_size_does_not_matter_where_nothing_is_fixed(task: Task) -> None:
    given = verdict(task, fixed=0)
    assert total(task, b"x\n" * 1000, given) == total(task, b"", given) == 0.0


def test_unknown_is_not_zero(task: Task) -> None:
    assert total(task, b"x", Verdict(status="unknown", evidence="infra")) is None


def test_a_run_whose_exit_code_disagrees_earns_nothing(task: Task) -> None:
    good = verdict(task, fixed=len(task.fail_to_pass))
    bad = Verdict(status="unresolved", evidence="inconsistent", outcomes=good.outcomes)
    assert total(task, task.gold_patch.encode(), bad) == 0.0


def test_negative_weights_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reward\.patch_size is -1"):
        RewardConfig(patch_size=-1)
