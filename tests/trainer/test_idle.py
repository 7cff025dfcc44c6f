"""Idle accounting: every second has one place, and waits are split over what is in flight."""

from __future__ import annotations

import pytest

from patchgym.trainer.idle import NOTHING, LearnerClock, StageBoard


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_is_split_over_the_stages_that_rollouts_are_in() -> None:
    clock = Clock()
    board = StageBoard(clock)
    learner = LearnerClock(board, clock)
    board.move("a", "sampling")
    board.move("b", "tests")
    with learner.span("waiting"):
        clock.now += 4.0
        board.move("a", "tests")
        clock.now += 2.0
    with learner.span("training"):
        clock.now += 3.0
    report = learner.report()
    assert report.waiting == pytest.approx({"sampling": 2.0, "tests": 4.0})
    assert report.busy["training"] == pytest.approx(3.0)
    assert report.seconds == pytest.approx(9.0)
    assert report.idle_share == pytest.approx(6 / 9)
    assert sum(report.reasons().values()) == pytest.approx(report.idle_share)
    assert sum(report.busy.values()) + sum(report.waiting.values()) == pytest.approx(9.0)


def test_waiting_with_nothing_in_flight_has_a_name_too() -> None:
    clock = Clock()
    board = StageBoard(clock)
    learner = LearnerClock(board, clock)
    with learner.span("waiting"):
        clock.now += 1.0
    assert learner.report().waiting == {NOTHING: 1.0}


def test_time_before_a_wait_is_not_part_of_it() -> None:
    clock = Clock()
    board = StageBoard(clock)
    board.move("a", "sampling")
    clock.now += 100.0
    learner = LearnerClock(board, clock)
    board.move("a", "tests")
    with learner.span("waiting"):
        clock.now += 1.0
    assert learner.report().waiting == {"tests": 1.0}


def test_the_board_names_who_has_been_longest() -> None:
    clock = Clock()
    board = StageBoard(clock)
    board.move("a", "sampling")
    clock.now += 5.0
    board.move("b", "tests")
    clock.now += 33.0
    assert board.oldest() == "a in sampling since 38 s"
    board.leave("a")
    assert board.oldest() == "b in tests since 33 s"
    assert board.counts() == {"tests": 1}
