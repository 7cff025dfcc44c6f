"""What a run shows of itself while it goes: a plain state that views read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .statistics import PassRate


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
    history: list[dict[str, Any]] = field(default_factory=list)
    """Metrics of the finished steps."""
    evaluations: dict[str, PassRate] = field(default_factory=dict)
    queue_depth: int = 0
    queue_capacity: int = 0
    open_groups: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    stages: dict[str, int] = field(default_factory=dict)
    learner: str = ""
    """What the learner does now."""
    idle_share: float = 0.0
    idle_reasons: dict[str, float] = field(default_factory=dict)
    tokens_per_second: float = 0.0
    started: float = field(default_factory=time.monotonic)
    listener: Callable[[str], None] = lambda line: None
    """Gets one line for each thing worth a line in a log."""

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.phase, self.done, self.total = phase, 0, 0
        self.listener(phase)

    def advance(self, done: int, total: int) -> None:
        """Progress inside the phase."""
        self.done, self.total = done, total
