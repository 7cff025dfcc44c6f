"""What a run shows of itself while it goes: a plain state that views read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .idle import spread_of
from .statistics import PassRate

KEPT = 40
"""Steps that views look back on."""
RECENT = 5
"""Steps that percentiles are of."""
_SHOWN = ("step", "reward", "pass_rate", "rollouts", "rollout_p95", "staleness", "outcomes")


@dataclass(slots=True)
class Progress:
    """Mutable, written by the run, read by a view."""

    title: str = ""
    phase: str = "starting"
    """What happens now, in words."""
    done: int = 0
    total: int = 0
    """Progress inside the phase."""
    step: int = 0
    steps: int = 0
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Of the last finished steps, what is shown of them."""
    evaluations: dict[str, PassRate] = field(default_factory=dict)
    queue_depth: int = 0
    queue_capacity: int = 0
    open_groups: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    stages: dict[str, int] = field(default_factory=dict)
    learner: str = ""
    """What the learner does now."""
    learner_seconds: float = 0.0
    """Since it began with that."""
    waits_for: str = ""
    """Whom the learner waits for, once it has waited for a while."""
    account: dict[str, Any] = field(default_factory=dict)
    """Idle shares of learner and sampler with their reasons: see `idle.steps.StepAccounts.whole`"""
    tokens_per_second: float = 0.0
    started: float = field(default_factory=time.monotonic)
    listener: Callable[[str], None] = lambda line: None
    """Gets one line for each thing worth a line in a log."""
    recorder: Callable[[str, Mapping[str, Any]], None] = lambda kind, record: None
    """Gets a record of its kind for each thing that a program may want to know."""

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.phase, self.done, self.total = phase, 0, 0
        self.listener(phase)
        self.recorder("phase", {"phase": phase})

    def advance(self, done: int, total: int) -> None:
        """Progress inside the phase."""
        self.done, self.total = done, total

    def stepped(self, metrics: Mapping[str, Any]) -> None:
        """A step is over: what views need of it is kept."""
        row = {key: metrics.get(key) for key in _SHOWN}
        self.history.append({**row, "stages": metrics.get("idle", {}).get("stages", {})})
        self.recorder("step", metrics)

    def measured(self, name: str, result: PassRate) -> None:
        """A held-out evaluation is over."""
        self.evaluations[name] = result
        values = {"pass_rate": result.pass_rate, "interval": list(result.interval)}
        self.recorder("heldout", {"name": name, **values, "samples": result.samples})

    def snapshot(self) -> dict[str, Any]:
        """All of it as JSON; see `live_picture` for who draws it."""
        last = self.history[-1] if self.history else {}
        return {
            "title": self.title,
            "seconds": time.monotonic() - self.started,
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "step": self.step,
            "steps": self.steps,
            "heldout": {
                name: {"pass_rate": each.pass_rate, "interval": list(each.interval)}
                for name, each in self.evaluations.items()
            },
            "queue": {"depth": self.queue_depth, "capacity": self.queue_capacity},
            "open_groups": self.open_groups,
            "dropped": dict(self.dropped),
            "stages": dict(self.stages),
            "learner": {"doing": self.learner, "seconds": self.learner_seconds},
            "waits_for": self.waits_for,
            "account": self.account,
            "tokens_per_second": self.tokens_per_second,
            "p95": stage_p95([row["stages"] for row in self.history][-RECENT:]),
            "staleness": last.get("staleness") or {},
            "outcomes": last.get("outcomes") or {},
        }


def stage_p95(stages: list[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds by stage, 95th percentile over the steps that these accounts are of."""
    names = {name for each in stages for name in each}
    return {
        name: spread_of([each[name] for each in stages if name in each]).p95
        for name in sorted(names)
    }
