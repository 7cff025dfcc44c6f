"""What the parts of a training share: each reads or writes it, none of them owns it."""

from __future__ import annotations

from dataclasses import dataclass

from .alarms import Alarms
from .config import RunConfig
from .ledger import Ledger
from .progress import Progress
from .recorder import Recorder
from .resources import Resources
from .reward_watch import RewardWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Of one run."""

    config: RunConfig
    resources: Resources
    ledger: Ledger
    recorder: Recorder
    progress: Progress
    rewards: RewardWatch
    """Looks for reward that is had without solving."""
    alarms: Alarms
