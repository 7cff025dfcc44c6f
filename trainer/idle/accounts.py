"""The learner's seconds: work of a named kind, or a wait with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from .board import Clock, StageBoard
from .courses import Stretch, totals

TRAINING, WAITING, BOOKKEEPING = "training", "waiting", "bookkeeping"
TOLD_AS = {"training": "the learner trains"}
"""What the learner's kinds of work are called where the sampler waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """Where the learner's time went."""

    seconds: float
    """Wall seconds covered."""
    busy: dict[str, float]
    """Seconds by kind of work: training, publishing, checkpointing, bookkeeping."""
    waiting: dict[str, float]
    """Seconds of waiting for groups, by reason."""

    @property
    def idle(self) -> dict[str, float]:
        """Seconds without an update under way, by reason: waits, and all work but training."""
        found = dict(self.waiting)
        for kind, seconds in self.busy.items():
            if kind != TRAINING:
                found[kind] = found.get(kind, 0.0) + seconds
        return found

    @property
    def idle_share(self) -> float:
        """Seconds without an update under way over all seconds."""
        return sum(self.idle.values()) / self.seconds if self.seconds > 0 else 0.0

    def reasons(self) -> dict[str, float]:
        """Reasons as shares of all seconds, largest first; they sum to `idle_share`."""
        if self.seconds <= 0:
            return {}
        ordered = sorted(self.idle.items(), key=lambda item: -item[1])
        return {reason: seconds / self.seconds for reason, seconds in ordered if seconds > 0}


class LearnerClock:
    """Attributes the learner's seconds; one span at a time.

    What a wait was for is known at its end: see `courses.walk`. While it goes on, and where no
    group became whole in it, it is split evenly over the stages that rollouts are in.
    """

    def __init__(self, board: StageBoard, clock: Clock | None = None) -> None:
        self._board = board
        self._clock = clock or board.clock
        self._busy: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        self._path: list[Stretch] = []
        self._kind = BOOKKEEPING
        self._since = self._started = self._clock()
        self._before = board.share_seconds()

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Work of `kind`, or `waiting` for groups."""
        self._switch(kind)
        try:
            yield
        finally:
            self._switch(BOOKKEEPING)

    @property
    def kind(self) -> str:
        """What the learner does now."""
        return self._kind

    @property
    def seconds(self) -> float:
        """Since it began with that."""
        return self._clock() - self._since

    def report(self) -> IdleReport:
        """All seconds so far, those of a span that goes on included."""
        busy, waiting = dict(self._busy), dict(self._waiting)
        now = self._clock()
        if self._kind == WAITING:
            _add(waiting, self._board.split(self._before, now - self._since))
        else:
            _add(busy, {self._kind: now - self._since})
        return IdleReport(seconds=now - self._started, busy=busy, waiting=waiting)

    def take_path(self) -> list[Stretch]:
        """The stretches of the waits that ended since the last call."""
        path, self._path = self._path, []
        return path

    def _switch(self, kind: str) -> None:
        board, now = self._board, self._clock()
        if self._kind == WAITING:
            self._end_wait(now)
        else:
            _add(self._busy, {self._kind: now - self._since})
            name = TOLD_AS.get(self._kind, self._kind)
            board.did([Stretch(stage=name, start=self._since, end=now)])
        if kind == WAITING:
            board.completer, board.learner_wait = None, now
            self._before = board.share_seconds()
        self._kind, self._since = kind, now

    def _end_wait(self, now: float) -> None:
        board = self._board
        if board.completer is not None:
            path = board.walk(board.completer, self._since)
            _add(self._waiting, totals(path))
            self._path += path
            board.did(path[::-1])
        else:
            parts = board.split(self._before, now - self._since)
            _add(self._waiting, parts)
            board.did(_in_turn(parts, self._since))
        board.completer = board.learner_wait = None


def _in_turn(parts: Mapping[str, float], start: float) -> list[Stretch]:
    """Shares of a wait as if one had come after the other."""
    found: list[Stretch] = []
    for stage, seconds in parts.items():
        found.append(Stretch(stage=stage, start=start, end=start + seconds))
        start += seconds
    return found


def _add(to: dict[str, float], parts: Mapping[str, float]) -> None:
    for key, seconds in parts.items():
        to[key] = to.get(key, 0.0) + seconds


def shares_of(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds as shares of their sum, the largest first; empty without any."""
    whole = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: part / whole for name, part in ordered if part > 0} if whole > 0 else {}
