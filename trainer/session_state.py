"""What a training session knows of itself, and what it puts on record when it is to end.

A signal and a stuck piece of work end a run from outside of it. Both write down at once why, before
anything is cleaned up: the end may come before order does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .config import RunConfig
from .going_on import GoingOn
from .idle import flying_words
from .ledger import Ledger
from .pipeline import SCORING_LIMIT
from .profiling import Observation
from .progress import Progress
from .resources import Resources
from .run_folder import RunFolder
from .stopping import LastResort
from .supervision import End, Stuck, end_of
from .telemetry import Gauges
from .telemetry.opening import Telemetry

if TYPE_CHECKING:
    from .multihost.hosts import Hosts

_STUCK = 1800.0
"""Seconds, at least, that one piece of work may take; more where a rollout may take more."""
_OPENING = 3600.0
"""Seconds, at least, that a phase of the opening may take without getting anywhere: an image may be
pulled or built, a model's programs compiled."""


@dataclass(slots=True)
class Session:
    """One run of `patchgym train`."""

    config: RunConfig
    folder: RunFolder
    resume: bool
    progress: Progress
    last_resort: LastResort
    stopped: bool = False
    began: bool = False
    """Everything was opened: from here on the folder is worth keeping."""
    end: End | None = None
    """Set by whoever ends the run from outside of it."""
    started: float = field(default_factory=time.monotonic)
    ledger: Ledger | None = None
    resources: Resources | None = None
    refresh: Callable[[], None] = lambda: None
    telemetry: Telemetry | None = None
    """While it is open."""
    gauges: Callable[[], Gauges | None] = lambda: None
    """What metrics are read from; None before the training is opened."""
    observe: Callable[[], Observation | None] = lambda: None
    """Where the training is; None before it is opened."""
    going: GoingOn = field(default_factory=GoingOn)
    """How it goes on, where it is resumed."""
    earlier: dict[str, Any] = field(default_factory=dict)
    """Summary of the run before it was resumed."""
    hosts: Hosts | None = None
    """The other processes of the learner, where there are any."""

    def on_step(self, step: int, found: Mapping[str, object]) -> None:
        """Step number `step`, from 0, was applied."""
        if self.telemetry is not None:
            self.telemetry.step(step, found)

    @property
    def step(self) -> int:
        """Updates that are done."""
        return self.resources.learner.step if self.resources is not None else 0

    def stop(self) -> None:
        """It was asked to end: from here on the clock runs."""
        self.last_resort.arm()
        self.refresh()
        found = under_way(self.progress)
        self.stopped = True
        limit = self.config.run.stop_limit
        self._ends(end_of(None, step=self.step, stopped=found, stage=self.progress.phase))
        if self.ledger is not None:
            detail = {"learner": self.progress.learner, "rollouts": dict(self.progress.stages)}
            self.ledger.event("stopping", phase=self.progress.phase, limit=limit, **detail)
        self.progress.enter(f"stopping: a checkpoint, in {limit:.0f} s (again to leave at once)")

    def stuck(self, words: str, stacks: str) -> None:
        """Something did not come back: the run ends, and so does the process if it must."""
        self.last_resort.arm(1)
        self._ends(end_of(Stuck(words), step=self.step, stage=self.progress.phase))
        if self.ledger is not None:
            limit = stuck_limit(self.config) if self.began else opening_limit(self.config)
            self.ledger.event("stalled", seconds=limit, report=f"{words}\n{stacks}")

    def stuck_disk(self, words: str) -> None:
        """The ledger's disk is stuck: threads that wait for it would keep the process for ever."""
        self.last_resort.arm(2)
        self.progress.listener(words)

    def moves(self) -> object:
        """Changes whenever anything gets anywhere, once everything is open; None while the learner
        waits for groups, which has a limit of its own."""
        now = self.progress
        if self.resources is None or not self.began or now.learner == "waiting":
            return None
        return now.phase, now.done, now.step, now.learner, self.resources.board.moves

    def opens(self) -> object:
        """Changes whenever the opening gets anywhere; None once everything is open."""
        return None if self.began else (self.progress.phase, self.progress.done)

    def opening(self) -> str:
        """What is being opened."""
        now = self.progress
        return f"{now.phase} ({now.done} of {now.total})" if now.total else now.phase

    def what(self) -> str:
        """What is being waited for."""
        flying = self.resources.board.entries() if self.resources is not None else ()
        words = f"{self.progress.phase}: {under_way(self.progress)}"
        return f"{words}; longest: {flying_words(flying)}"

    def last_words(self) -> str:
        """For when the process ends without order."""
        name, limit = self.folder.path.name, self.last_resort.limit
        return (
            f"not over {limit:.0f} s after it was to end ({self.progress.phase}; "
            f"{under_way(self.progress)}): left as it is; what followed the last checkpoint is "
            f"done again by: patchgym train --resume {name}"
        )

    def _ends(self, end: End) -> None:
        """On record at once: the end may come before order does."""
        self.end = end
        if self.ledger is not None:
            self.ledger.meta("end", asdict(end))
            self.ledger.meta("state", end.how)


def under_way(progress: Progress) -> str:
    """What a run was doing, in words."""
    rollouts = ", ".join(f"{count} in {stage}" for stage, count in sorted(progress.stages.items()))
    learner = f"the learner was {progress.learner}; " if progress.learner else ""
    return f"{learner}rollouts: {rollouts or 'none'}"


def stuck_limit(config: RunConfig) -> float:
    """Seconds without any move after which a run ends: more than any wait with a limit takes."""
    rollout = config.rollout.seconds + SCORING_LIMIT * config.scoring.deadline
    return max(_STUCK, 2 * rollout)


def opening_limit(config: RunConfig) -> float:
    """Seconds that a phase of the opening may take without getting anywhere."""
    return max(_OPENING, stuck_limit(config))
