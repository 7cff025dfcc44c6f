"""Idle accounting: each second of the learner is work of a named kind or a wait with a reason.

While the learner waits, each instant is attributed to the stages in which rollouts are at that
instant, in equal parts a rollout. The stage board integrates those shares whenever a rollout
changes stage, so that no ticker is needed and the shares of a wait sum to its length exactly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Clock = Callable[[], float]

NOTHING = "no rollout in flight"


class StageBoard:
    """Where every rollout in flight is, and for how long."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._stages: dict[str, tuple[str, float]] = {}
        self._counts: Counter[str] = Counter()
        self._shares: dict[str, float] = {}
        self._last = clock()
        self.moves = 0
        """Changes so far: while it stands still, no rollout gets anywhere."""

    def move(self, rollout_id: str, stage: str) -> None:
        """Put a rollout into `stage`."""
        self._integrate()
        self.moves += 1
        if rollout_id in self._stages:
            self._counts[self._stages[rollout_id][0]] -= 1
        self._stages[rollout_id] = (stage, self._clock())
        self._counts[stage] += 1

    def leave(self, rollout_id: str) -> None:
        """The rollout is over."""
        self._integrate()
        self.moves += 1
        stage, _ = self._stages.pop(rollout_id)
        self._counts[stage] -= 1

    def counts(self) -> dict[str, int]:
        """Rollouts by stage."""
        return {stage: count for stage, count in self._counts.items() if count}

    def share_seconds(self) -> dict[str, float]:
        """Seconds so far, split over stages; they sum to the time since the board was made."""
        self._integrate()
        return dict(self._shares)

    def listing(self, most: int = 20) -> str:
        """The rollouts that have been longest in their stages, a line each."""
        now = self._clock()
        ordered = sorted(self._stages.items(), key=lambda item: item[1][1])
        lines = [
            f"{name} in {stage} since {now - at:.0f} s" for name, (stage, at) in ordered[:most]
        ]
        if len(ordered) > most:
            lines.append(f"and {len(ordered) - most} more")
        return "\n".join(lines) or NOTHING

    def oldest(self) -> str:
        """The rollout that has been longest in its stage, in words."""
        if not self._stages:
            return NOTHING
        rollout, (stage, since) = min(self._stages.items(), key=lambda item: item[1][1])
        return f"{rollout} in {stage} since {self._clock() - since:.0f} s"

    def _integrate(self) -> None:
        now = self._clock()
        elapsed, self._last = now - self._last, now
        total = len(self._stages)
        if total == 0:
            self._shares[NOTHING] = self._shares.get(NOTHING, 0.0) + elapsed
            return
        for stage, count in self._counts.items():
            if count:
                self._shares[stage] = self._shares.get(stage, 0.0) + elapsed * count / total


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """Where the learner's time went."""

    seconds: float
    """Wall seconds covered."""
    busy: dict[str, float]
    """Seconds by kind of work."""
    waiting: dict[str, float]
    """Seconds of waiting by reason."""

    @property
    def idle_share(self) -> float:
        """Waiting seconds over all seconds."""
        return sum(self.waiting.values()) / self.seconds if self.seconds > 0 else 0.0

    def reasons(self) -> dict[str, float]:
        """Reasons as shares of all seconds, largest first; they sum to `idle_share`."""
        if self.seconds <= 0:
            return {}
        ordered = sorted(self.waiting.items(), key=lambda item: -item[1])
        return {reason: seconds / self.seconds for reason, seconds in ordered}


class LearnerClock:
    """Attributes the learner's seconds; one span at a time."""

    def __init__(self, board: StageBoard, clock: Clock = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._busy: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        self._kind = "bookkeeping"
        self._since = clock()
        self._before = board.share_seconds()
        self._started = self._since

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Work of `kind`; `waiting` is split over the stages that rollouts are in."""
        self._switch(kind)
        try:
            yield
        finally:
            self._switch("bookkeeping")

    @property
    def kind(self) -> str:
        """What the learner does now."""
        return self._kind

    def report(self) -> IdleReport:
        """All seconds so far."""
        self._switch(self._kind)
        return IdleReport(
            seconds=self._since - self._started,
            busy=dict(self._busy),
            waiting=dict(self._waiting),
        )

    def _switch(self, kind: str) -> None:
        now, shares = self._clock(), self._board.share_seconds()
        elapsed = now - self._since
        if self._kind == "waiting":
            gone = {key: value - self._before.get(key, 0.0) for key, value in shares.items()}
            total = sum(gone.values())
            for key, value in gone.items():
                if value > 0:
                    self._waiting[key] = self._waiting.get(key, 0.0) + value / total * elapsed
        else:
            self._busy[self._kind] = self._busy.get(self._kind, 0.0) + elapsed
        self._kind, self._since, self._before = kind, now, shares
