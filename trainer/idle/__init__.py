"""Why anything waits: each second of learner and sampler has one place.

    StageBoard       where every rollout is, and by what it came to start
    LearnerClock     the learner's seconds: work by kind, waits by what the awaited group was in
    courses.walk     back from the end of a wait, over what each step of the way had to wait for

See docs/idle.md.
"""

from __future__ import annotations

from .accounts import IdleReport, LearnerClock, shares_of
from .board import StageBoard
from .courses import HAND_OVER, NOTHING, Stretch, longest
from .durations import Durations, Spread, spread_of
from .flying import Flying, flying_words, wait_line
from .sampler import GENERATING
from .steps import StepAccounts
from .told import RolloutStages

__all__ = [
    "GENERATING",
    "HAND_OVER",
    "NOTHING",
    "Durations",
    "Flying",
    "IdleReport",
    "LearnerClock",
    "RolloutStages",
    "Spread",
    "StageBoard",
    "StepAccounts",
    "Stretch",
    "flying_words",
    "longest",
    "shares_of",
    "spread_of",
    "wait_line",
]
