"""The account of each step: what its ledger row says of where the time went.

    learner   seconds by kind of work and reason of wait; they sum to `seconds`
    sampler   seconds by what it did or waited for; a wait is in the step in which it ended
    path      the longest stretches of the learner's wait, with task and rollout
    behind    seconds of the wait in rollouts that only held the slot or scorer that another needed
    sampling  mean number of turns under way
    stages    durations of stages that rollouts left: see `durations`

All seconds are wall seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .accounts import LearnerClock, shares_of
from .board import StageBoard
from .courses import Stretch, longest
from .sampler import GENERATING

PATH = 5
"""Stretches kept of a step's wait."""


class StepAccounts:
    """One for each time that a run trains."""

    def __init__(self, board: StageBoard) -> None:
        self.clock = LearnerClock(board)
        self._board = board
        board.restart_sampler()
        board.durations.take()
        self._seconds = self._sampling = 0.0
        self._learner: dict[str, float] = {}
        self._sampler: dict[str, float] = {}

    def step(self) -> dict[str, Any]:
        """The account since the last call."""
        report = self.clock.report()
        learner = _sum(report.busy, report.waiting)
        sampler = self._board.settle_sampler()
        seconds, sampling = report.seconds - self._seconds, self._board.sampling_seconds
        path = self.clock.take_path()
        found = {
            "seconds": round(seconds, 4),
            "learner": _since(learner, self._learner),
            "sampler": _since(sampler, self._sampler),
            "path": [_stretch(each) for each in longest(path, PATH)],
            "behind": _behind(path),
            "sampling": round((sampling - self._sampling) / seconds, 3) if seconds > 0 else 0.0,
            "stages": self._board.durations.take(),
        }
        self._seconds, self._sampling = report.seconds, sampling
        self._learner, self._sampler = learner, sampler
        return found

    def whole(self) -> dict[str, Any]:
        """Shares of all seconds since the begin, for people who look on: JSON types only."""
        report, sampler = self.clock.report(), shares_of(self._board.sampler_seconds())
        reasons = {why: share for why, share in sampler.items() if why != GENERATING}
        return {
            "seconds": report.seconds,
            "idle_share": report.idle_share,
            "idle_reasons": report.reasons(),
            "busy": report.busy,
            "sampler": {"idle_share": sum(reasons.values()), "idle_reasons": reasons},
        }


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in (*one, *other)}


def _since(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    parts = {key: round(value - before.get(key, 0.0), 4) for key, value in now.items()}
    return {key: part for key, part in parts.items() if part}


def _stretch(stretch: Stretch) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stage": stretch.stage,
        "task": stretch.task_id,
        "rollout": stretch.rollout_id,
        "seconds": round(stretch.seconds, 4),
    }
    return {**found, "behind": stretch.behind} if stretch.behind else found


def _behind(path: list[Stretch]) -> dict[str, float]:
    found: dict[str, float] = {}
    for stretch in path:
        if stretch.behind:
            found[stretch.behind] = round(found.get(stretch.behind, 0.0) + stretch.seconds, 4)
    return found
