"""Idle accounting: every second has one place, and a wait goes to what was waited for."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.trainer.idle import (
    HAND_OVER,
    NOTHING,
    Durations,
    LearnerClock,
    RolloutStages,
    StageBoard,
    StepAccounts,
    longest,
    spread_of,
)
from patchgym.trainer.idle.courses import Course


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A board whose stages tests set off one by one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.board = StageBoard(self.clock)
        self.learner = LearnerClock(self.board)

    def go(self, seconds: float, name: str = "", stage: str = "") -> None:
        """Time passes, then a rollout comes into a stage."""
        self.clock.now += seconds
        if name:
            self.board.move(name, stage)

    def over(self, name: str) -> None:
        """A rollout is delivered, and makes a group whole."""
        self.board.completes(name)
        self.board.leave(name)


def test_a_wait_without_a_whole_group_is_split_over_the_stages_that_rollouts_are_in() -> None:
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


def test_a_wait_goes_to_the_stages_of_the_rollout_that_was_awaited_and_to_no_other() -> None:
    scene = Scene()
    for name in ("quick", "slow"):
        scene.go(0, name, "sampling")
    with scene.learner.span("waiting"):
        scene.go(1, "quick", "tests")
        scene.go(1, "slow", "tool bash")
        scene.go(5, "quick", "scoring")
        scene.go(0, "slow", "scoring")
        scene.go(0.5)
        scene.over("slow")
    assert scene.learner.report().waiting == {"sampling": 2.0, "tool bash": 5.0, "scoring": 0.5}
    (worst, *_) = longest(scene.learner.take_path(), 1)
    assert (worst.rollout_id, worst.stage, worst.seconds) == ("slow", "tool bash", 5.0)


def test_of_a_rollout_that_started_late_the_way_goes_on_in_the_one_that_held_its_slot() -> None:
    scene = Scene()
    scene.board.begin("first", "t1", "slot", "sampling")
    with scene.learner.span("waiting"):
        scene.go(3, "first", "scoring")
        scene.board.free("slot", "first")
        scene.board.begin("second", "t2", "slot", "tool bash")
        scene.go(2)
        scene.over("second")
    assert scene.learner.report().waiting == {"sampling": 3.0, "tool bash": 2.0}
    path = scene.learner.take_path()
    assert [(each.rollout_id, each.behind) for each in path] == [("second", ""), ("first", "slot")]


def test_of_a_rollout_that_a_dropped_group_let_start_the_way_goes_on_in_that_group() -> None:
    scene = Scene()
    scene.board.begin("dropped", "t1", "one", "sampling")
    scene.board.free("two")
    with scene.learner.span("waiting"):
        scene.go(4)
        scene.board.leave("dropped")  # no spread: another group may open
        scene.go(0.25)
        scene.board.begin("instead", "t2", "two", "tool bash")
        scene.go(1)
        scene.over("instead")
    waits = scene.learner.report().waiting
    assert waits == {"sampling": 4.0, HAND_OVER: 0.25, "tool bash": 1.0}


def test_a_wait_in_line_for_a_scorer_is_the_scoring_of_those_before() -> None:
    scene = Scene()
    scene.board.begin("before", "t", 1, "scoring")
    scene.board.begin("mine", "t", 2, "sampling")
    with scene.learner.span("waiting"):
        scene.go(1, "mine", "scoring wait")
        scene.go(2)
        scene.board.leave("before")
        scene.board.move("mine", "scoring", in_line=True)
        scene.go(1.5)
        scene.over("mine")
    assert scene.learner.report().waiting == {"scoring": 4.5}
    behind = sum(each.seconds for each in scene.learner.take_path() if each.behind == "scorer")
    assert behind == 2.0, "it came in line a second after the wait began"


def test_the_sampler_waits_for_what_its_next_turn_had_to_wait_for() -> None:
    scene = Scene()
    board = scene.board
    board.begin("a", "t", 1, "sampling")
    with scene.learner.span("waiting"):
        scene.go(2, "a", "tool bash")
        scene.go(1, "a", "sampling")
        scene.go(2, "a", "scoring")
        scene.go(1)
        board.free(1, "a")
        scene.over("a")
    with scene.learner.span("training"):
        scene.go(6)
    with scene.learner.span("publishing"):
        scene.go(0.5)
    board.begin("b", "t", 1, "lease wait")
    scene.go(0.25, "b", "sampling")
    scene.go(1)
    assert board.sampler_seconds() == {
        "generating": 5.0,
        "tool bash": 1.0,
        "scoring": 1.0,
        "the learner trains": 6.0,
        "publishing": 0.5,
        "lease wait": 0.25,
    }


def test_admission_is_a_reason_of_its_own() -> None:
    scene = Scene()
    scene.go(3)
    scene.board.allows("admission", 1.0)
    scene.board.begin("a", "t", 1, "sampling")
    assert scene.board.sampler_seconds() == {NOTHING: 1.0, "admission": 2.0}


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


STAGES = ("sampling", "tool bash", "scoring wait", "scoring", "queue full")
KINDS = ("waiting", "training", "publishing", "checkpointing")


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_happens_the_shares_of_learner_and_sampler_sum_to_one(data: st.DataObject) -> None:
    """Random histories: rollouts start, move, hand over and end while the learner changes work."""
    clock = Clock()
    board = StageBoard(clock)
    accounts, span = StepAccounts(board), None
    aboard: list[str] = []
    recorded: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 60))):
        clock.now += data.draw(st.sampled_from([0.0, 0.25, 1.0, 7.5]))
        what = data.draw(st.sampled_from(["begin", "move", "move", "move", "leave", "learner"]))
        if what == "begin":
            board.begin(f"r{number}", "t", data.draw(st.integers(0, 3)))
            aboard.append(f"r{number}")
        elif what == "learner":
            if span is not None:
                span.__exit__(None, None, None)
                recorded.append(accounts.step())
            span = accounts.clock.span(data.draw(st.sampled_from(KINDS)))
            span.__enter__()
        elif aboard:
            name = data.draw(st.sampled_from(aboard))
            if what == "move":
                board.move(name, data.draw(st.sampled_from(STAGES)), in_line=number % 3 == 0)
            else:
                if data.draw(st.booleans()):
                    board.completes(name)
                if data.draw(st.booleans()):
                    board.free(number % 4, name)
                board.leave(name)
                aboard.remove(name)
    clock.now += 1.0
    report = accounts.clock.report()
    assert report.seconds == pytest.approx(clock.now)
    assert sum(report.busy.values()) + sum(report.waiting.values()) == pytest.approx(clock.now)
    assert sum(board.sampler_seconds().values()) == pytest.approx(clock.now)
    parts = [*report.busy.values(), *report.waiting.values(), *board.sampler_seconds().values()]
    assert min(parts) >= -1e-9
    for step in recorded:
        assert sum(step["learner"].values()) == pytest.approx(step["seconds"], abs=1e-3)


def courses() -> int:
    """Courses in memory, those of other tests included."""
    gc.collect()
    return sum(isinstance(each, Course) for each in gc.get_objects())


def test_rollouts_that_are_over_are_forgotten() -> None:
    before = courses()
    scene = Scene()
    for number in range(500):
        with scene.learner.span("waiting" if number % 2 else "training"):
            scene.board.begin(f"r{number}", "t", "slot", "sampling")
            scene.go(1, f"r{number}", "scoring wait")
            scene.board.move(f"r{number}", "scoring", in_line=True)
            scene.board.free("slot", f"r{number}")
            scene.over(f"r{number}")
    assert courses() < before + 20
    assert len(scene.board.learner.pieces) < 20


def test_the_board_tells_who_is_where_the_longest_wait_first_with_task_and_sandbox() -> None:
    scene = Scene()
    scene.board.begin("a", "calc/add", 1, "sampling")
    told = RolloutStages(scene.board, "a")
    told("tool run_tests")
    told("lease wait")
    told("", sandbox="patchgym-7f3a")
    scene.go(5, "b", "tests")
    scene.go(33)
    first, second = scene.board.entries()
    assert (first.task_id, first.stage, first.sandbox) == (
        "calc/add",
        "tool run_tests",
        "patchgym-7f3a",
    )
    assert (first.seconds, second.seconds) == (38.0, 33.0)
    words = "a in tool run_tests since 38 s (sandbox patchgym-7f3a)\nb in tests since 33 s"
    assert scene.board.listing() == words
    scene.board.leave("a")
    assert scene.board.listing() == "b in tests since 33 s"
    assert scene.board.counts() == {"tests": 1}


def test_a_policy_that_makes_up_tools_can_neither_fill_the_board_nor_speak_to_a_terminal() -> None:
    scene = Scene()
    for number in range(200):
        scene.go(0, "a", f"tool {number}")
    scene.go(0, "b", "tool \x1b[2J")
    assert set(scene.board.counts()) == {"other"}
    fresh = StageBoard(Clock())
    fresh.move("a", "tool \x1b[2J")
    assert fresh.counts() == {"tool ?[2J": 1}


@given(st.lists(st.floats(0.002, 5000), min_size=1, max_size=200))
def test_percentiles_of_kept_durations_are_at_most_a_tenth_too_high(seconds: list[float]) -> None:
    kept: list[Any] = []
    for part in (seconds[::2], seconds[1::2]):  # of two steps
        durations = Durations()
        for each in part:
            durations.add("tool bash", each)
        kept += durations.take().values()
        assert durations.take() == {}
    found = spread_of(kept)
    ordered = sorted(seconds)
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        exact = ordered[-int(-(share * len(ordered)) // 1) - 1]
        assert exact * 0.999 <= value <= exact * 1.0907
    assert found.count == len(seconds)
