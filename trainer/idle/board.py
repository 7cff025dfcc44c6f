"""The stage board: where every rollout is, for how long, and by whose end it came to start.

    pipeline --begin, move, leave--> board --entries--> watchdog, live view
    learner  --learner, completes--> board --walk-----> why the learner and the sampler waited

What the sampler waited for is known when its next turn is asked for. Until then, as with the
learner's waits, it is split evenly over the stages that rollouts are in.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from .courses import NOTHING, SLOT, Cause, Course, LearnerTimeline, Stay, Stretch, walk
from .durations import Durations
from .flying import Flying
from .sampler import SAMPLING, SamplerAccount

Clock = Callable[[], float]

MOST_STAGES = 48
"""Names of stages told apart: a policy may make up any number of tools."""
OTHER = "other"


class StageBoard:
    """Where every rollout in flight is, and for how long."""

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or time.monotonic
        self.clock = clock
        self.learner = LearnerTimeline()
        self.durations = Durations()
        """Of stages that were left."""
        self.moves = 0
        """Changes so far: while it stands still, no rollout gets anywhere."""
        self.completer: Course | None = None
        """The rollout whose delivery made the latest group whole."""
        self.sampling_seconds = 0.0
        """Seconds of all turns under way, summed: over wall seconds, the mean number of them."""
        self.learner_wait: float | None = None
        """Since when the learner waits; None while it does not."""
        self._courses: dict[str, Course] = {}
        self._over: deque[Course] = deque()
        """Delivered, and perhaps on the way back of a wait that is still open."""
        self._slots: dict[object, tuple[int, Course | None, float]] = {}
        self._latest = Cause(at=clock())
        self._events = 0
        self._counts: Counter[str] = Counter()
        self._names: set[str] = set()
        self._shares: dict[str, float] = {}
        self._last = clock()
        self._sampler = SamplerAccount(self._last)

    def begin(self, rollout_id: str, task_id: str, slot: object, stage: str = "opening") -> None:
        """A rollout starts in `slot`, which said `free` before."""
        self._integrate()
        events, before, since = self._slots.pop(slot, (self._events, None, self.clock()))
        if events == self._events and before is not None:
            cause = Cause(at=since, course=before, behind=SLOT)
        else:
            cause = self._latest
        self._courses[rollout_id] = Course(rollout_id=rollout_id, task_id=task_id, cause=cause)
        self._enter(rollout_id, stage)

    def free(self, slot: object, rollout_id: str = "") -> None:
        """`slot` looks for work; the rollout was the last in it."""
        before = self._courses.get(rollout_id) or self._lately(rollout_id)
        self._slots[slot] = (self._events, before, self.clock())

    def move(self, rollout_id: str, stage: str, *, in_line: bool = False) -> None:
        """A rollout comes into `stage`; `in_line` when it had to wait for the delivery of another
        to get there."""
        self._integrate()
        if rollout_id not in self._courses:
            self._courses[rollout_id] = Course(rollout_id=rollout_id, cause=self._latest)
        self._enter(rollout_id, stage, self._latest.course if in_line else None)

    def holds(self, rollout_id: str, sandbox: str) -> None:
        """A rollout has a sandbox; an empty name when it gave it back."""
        if rollout_id in self._courses:
            self._courses[rollout_id].sandbox = sandbox

    def gone(self, slot: object) -> None:
        """`slot` is no more."""
        self._slots.pop(slot, None)

    def leave(self, rollout_id: str) -> None:
        """The rollout was delivered: what waited for that may go on."""
        course = self._end(rollout_id)
        self._over.append(course)
        self._event(Cause(at=self.clock(), course=course))
        self._forget()

    def forget(self, rollout_id: str) -> None:
        """The rollout was cancelled, and nothing comes of it."""
        if rollout_id in self._courses:
            self._end(rollout_id)

    def completes(self, rollout_id: str) -> None:
        """A group became whole when this rollout was delivered, or went on without it."""
        self.completer = self._courses.get(rollout_id) or self._lately(rollout_id)

    def did(self, pieces: Sequence[Stretch]) -> None:
        """The learner did this up to now; something else begins."""
        self.learner.add(pieces)
        self._event(Cause(at=self.clock()))

    def allows(self, held: str, since: float) -> None:
        """More rollouts may start; `held` is what had kept them back since then."""
        self._event(Cause(at=since, held=held))

    def walk(self, course: Course | None, since: float) -> list[Stretch]:
        """What led to where `course` is now, back to `since`; see `courses.walk`."""
        return walk(course, self.clock(), since, self.learner)

    def counts(self) -> dict[str, int]:
        """Rollouts by stage."""
        return {stage: count for stage, count in self._counts.items() if count}

    def entries(self) -> list[Flying]:
        """Every rollout in flight, the one longest in its stage first."""
        now = self.clock()
        flying = [
            Flying(
                rollout_id=course.rollout_id,
                task_id=course.task_id or course.rollout_id,
                stage=course.stays[-1].stage,
                seconds=now - course.stays[-1].since,
                sandbox=course.sandbox,
            )
            for course in self._courses.values()
        ]
        return sorted(flying, key=lambda each: -each.seconds)

    def listing(self, most: int = 20) -> str:
        """The rollouts that have been longest in their stages, a line each."""
        entries = self.entries()
        lines = [
            f"{each.rollout_id} in {each.stage} since {each.seconds:.0f} s"
            + (f" (sandbox {each.sandbox})" if each.sandbox else "")
            for each in entries[:most]
        ]
        lines += [f"and {len(entries) - most} more"] if len(entries) > most else []
        return "\n".join(lines) or NOTHING

    def share_seconds(self) -> dict[str, float]:
        """Seconds so far, split over stages; they sum to the time since the board was made."""
        self._integrate()
        return dict(self._shares)

    def restart_sampler(self) -> None:
        """Begin the sampler's account anew."""
        self._integrate()
        self.sampling_seconds = 0.0
        self._sampler = SamplerAccount(self.clock())
        self._sampler.shares = dict(self._shares)

    def settle_sampler(self) -> dict[str, float]:
        """The sampler's seconds up to now, or up to the begin of a wait that is not over."""
        if self._counts[SAMPLING]:
            self._sampler.generated(self.clock())
        return dict(self._sampler.seconds)

    def sampler_seconds(self) -> dict[str, float]:
        """The sampler's seconds up to now; they sum to the time since its account began."""
        found, waited = self.settle_sampler(), self.clock() - self._sampler.since
        for stage, seconds in self.split(self._sampler.shares, waited).items():
            found[stage] = found.get(stage, 0.0) + seconds
        return {stage: seconds for stage, seconds in found.items() if seconds}

    def split(self, before: Mapping[str, float], seconds: float) -> dict[str, float]:
        """`seconds` that ended just now, over the stages that rollouts were in since the shares
        were `before`, in equal parts a rollout."""
        gone = {
            stage: share - before.get(stage, 0.0) for stage, share in self.share_seconds().items()
        }
        total = sum(gone.values())
        return {stage: part / total * seconds for stage, part in gone.items() if part > 0}

    def _enter(self, rollout_id: str, stage: str, after: Course | None = None) -> None:
        self._integrate()
        self.moves += 1
        course, now = self._courses[rollout_id], self.clock()
        self._close_stay(course, now)
        name = self._named(stage)
        if name == SAMPLING and not self._counts[SAMPLING]:
            path = walk(course, now, self._sampler.since, self.learner)
            self._sampler.wakes(path, now)
        course.stays.append(Stay(stage=name, since=now, after=after))
        self._counts[name] += 1

    def _close_stay(self, course: Course, now: float) -> None:
        if not course.stays:
            return
        stay = course.stays[-1]
        self.durations.add(stay.stage, now - stay.since)
        self._counts[stay.stage] -= 1
        if stay.stage == SAMPLING:
            self.sampling_seconds += now - stay.since
            if not self._counts[SAMPLING]:
                self._sampler.sleeps(dict(self._shares), now)

    def _end(self, rollout_id: str) -> Course:
        self._integrate()
        self.moves += 1
        course = self._courses.pop(rollout_id)
        course.left = self.clock()
        self._close_stay(course, course.left)
        return course

    def _named(self, stage: str) -> str:
        """The stage's name, printable; `OTHER` when there are too many."""
        name = "".join(letter if letter.isprintable() else "?" for letter in stage[:60])
        if name not in self._names and len(self._names) >= MOST_STAGES:
            return OTHER
        self._names.add(name)
        return name

    def _lately(self, rollout_id: str) -> Course | None:
        found = (each for each in reversed(self._over) if each.rollout_id == rollout_id)
        return next(found, None)

    def _event(self, cause: Cause) -> None:
        self._latest = cause
        self._events += 1

    def _forget(self) -> None:
        """Let go of whatever ended before any wait that is still open."""
        waits = [self.learner_wait, None if self._counts[SAMPLING] else self._sampler.since]
        horizon = min((since for since in waits if since is not None), default=self.clock())
        self.learner.forget(horizon)
        while self._over and (self._over[0].left or 0.0) < horizon:
            course = self._over.popleft()
            course.cause = None  # or each would keep all before it
            course.stays.clear()

    def _integrate(self) -> None:
        now = self.clock()
        elapsed, self._last = now - self._last, now
        total = len(self._courses)
        if total == 0:
            self._shares[NOTHING] = self._shares.get(NOTHING, 0.0) + elapsed
            return
        for stage, count in self._counts.items():
            if count:
                self._shares[stage] = self._shares.get(stage, 0.0) + elapsed * count / total
