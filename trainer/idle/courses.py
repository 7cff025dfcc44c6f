"""Courses of rollouts, and the way back along them: what a wait was for, second by second.

    wait ends <- the group became whole <- its last rollout was delivered <- its stages, backwards
                                                                                  |
        the slot's last rollout, the delivery that let a group open, <------------+
        the rollout that held the scorer, or the learner's own doing

This is the critical path: had any stretch on it been shorter, the wait would have ended sooner, up
to the next longest way. Only what lies inside a wait is asked for, so courses that ended before any
wait that is still open are forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

NOTHING = "no rollout in flight"
HAND_OVER = "handing over"
"""Between a delivery and what it set off: the event loop, and writes to the ledger."""
SLOT, SCORER = "slot", "scorer"
"""What a stretch of another rollout may have kept busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a wait: somebody was in one stage."""

    stage: str
    start: float
    """Seconds of the board's clock."""
    end: float
    task_id: str = ""
    rollout_id: str = ""
    behind: str = ""
    """`slot` or `scorer` where this rollout only kept that busy which the awaited one needed."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A rollout came into a stage."""

    stage: str
    since: float
    after: Course | None = None
    """Whose end it waited for to get there; None where it had not to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What let a rollout start."""

    at: float
    course: Course | None = None
    """The rollout that ended, or was delivered; None: something that the learner did."""
    behind: str = ""
    """`slot` when that rollout had held the slot until then."""
    held: str = ""
    """What had held the start back until then, where that is known."""


@dataclass(slots=True, eq=False, kw_only=True)
class Course:
    """One rollout from its start to its delivery."""

    rollout_id: str
    task_id: str = ""
    sandbox: str = ""
    stays: list[Stay] = field(default_factory=list)
    cause: Cause | None = None
    left: float | None = None
    """When it was delivered; None while it is under way."""


@dataclass(slots=True, eq=False)
class LearnerTimeline:
    """What the learner did lately: its waits are already taken apart."""

    pieces: deque[Stretch] = field(default_factory=deque)

    def add(self, stretches: Iterable[Stretch]) -> None:
        """What it did next, in order of time."""
        self.pieces.extend(stretches)

    def forget(self, before: float) -> None:
        """Nobody will ask for what ended before then."""
        while self.pieces and self.pieces[0].end <= before:
            self.pieces.popleft()

    def between(self, start: float, end: float) -> list[Stretch]:
        """What it did then, clipped, the latest first; what is not known is `NOTHING`."""
        found: list[Stretch] = []
        for piece in reversed(self.pieces):
            if piece.end <= start:
                break
            if piece.start < end:
                clipped = replace(piece, start=max(piece.start, start), end=min(piece.end, end))
                found += [Stretch(stage=NOTHING, start=clipped.end, end=end), clipped]
                end = clipped.start
        found.append(Stretch(stage=NOTHING, start=start, end=end))
        return [stretch for stretch in found if stretch.seconds > 0]


def walk(course: Course | None, at: float, since: float, learner: LearnerTimeline) -> list[Stretch]:
    """The stretches of [since, at] that led to what `course` did at `at`, the latest first.

    They follow each other without a gap: their lengths sum to `at - since`.
    """
    path = _Path(now=at, since=since)
    while path.now > since:
        if course is None:
            path.found += learner.between(since, path.now)
            break
        if course.left is not None and course.left < path.now:
            path.to(course.left, HAND_OVER, course)
        course = _back(path, course)
    return path.found


@dataclass(slots=True)
class _Path:
    now: float
    since: float
    behind: str = ""
    line: float | None = None
    """When the awaited rollout came in line for a scorer: before, nothing was behind one."""
    found: list[Stretch] = field(default_factory=list)

    def to(self, start: float, stage: str, course: Course) -> None:
        """Go back to `start`, all of it in `stage`."""
        if self.line is not None and start < self.line:
            line, self.line = self.line, None
            self.to(line, stage, course)
            self.behind = ""
        start = max(start, self.since)
        if start < self.now:
            stretch = Stretch(
                stage=stage,
                start=start,
                end=self.now,
                task_id=course.task_id,
                rollout_id=course.rollout_id,
                behind=self.behind,
            )
            self.found.append(stretch)
            self.now = start


def _back(path: _Path, course: Course) -> Course | None:
    """Walk to the start of `course`, or to where it waited for another; whom to follow then."""
    for index, stay in reversed(list(enumerate(course.stays))):
        if stay.since >= path.now:
            continue  # later, or no time was spent in it
        path.to(stay.since, stay.stage, course)
        if path.now <= path.since:
            return None
        if stay.after is not None:
            path.behind, path.line = SCORER, course.stays[index - 1].since
            return stay.after
    cause = course.cause
    if cause is None:
        path.to(path.since, NOTHING, course)
        return None
    path.to(cause.at, cause.held or HAND_OVER, course)
    if cause.behind:
        path.behind, path.line = cause.behind, None
    return cause.course


def totals(stretches: Iterable[Stretch]) -> dict[str, float]:
    """Seconds by stage."""
    found: dict[str, float] = {}
    for stretch in stretches:
        found[stretch.stage] = found.get(stretch.stage, 0.0) + stretch.seconds
    return found


def longest(stretches: Sequence[Stretch], most: int) -> list[Stretch]:
    """The longest of them, neighbours of one rollout and stage taken together."""
    return sorted(_joined(stretches), key=lambda each: -each.seconds)[:most]


def _joined(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    last: Stretch | None = None
    for stretch in sorted(stretches, key=lambda each: each.start):
        same = last is not None and (last.rollout_id, last.stage) == (
            stretch.rollout_id,
            stretch.stage,
        )
        if last is not None and same and last.end == stretch.start:
            last = replace(last, end=stretch.end)
            continue
        if last is not None:
            yield last
        last = stretch
    if last is not None:
        yield last
