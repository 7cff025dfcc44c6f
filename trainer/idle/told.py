"""What a rollout tells of itself, put on the board under its name."""

from __future__ import annotations

from dataclasses import dataclass, field

from .board import StageBoard

ASIDE = ("image", "lease wait", "checkout")
"""Stages on the way to a sandbox: what the rollout was about goes on after them."""


@dataclass(slots=True)
class RolloutStages:
    """Implements `domain.OnStage` for one rollout."""

    board: StageBoard
    rollout_id: str
    _doing: str = field(default="opening")
    """The last stage that was not aside."""

    def __call__(self, stage: str, /, *, sandbox: str = "") -> None:
        """It is in `stage`; an empty one is what it did before it needed a sandbox."""
        if stage and stage not in ASIDE:
            self._doing = stage
        self.board.move(self.rollout_id, stage or self._doing)
        if sandbox:
            self.board.holds(self.rollout_id, sandbox)
