"""Rewards: verdicts in fresh sandboxes, scored by workers of their own."""

from .base import Component, Reward, Score, Verdict
from .composite import RewardConfig, compose
from .patch_size import PatchSizeComponent
from .tests import TestsComponent
from .verdict import JudgeConfig, judge, judge_tree
from .workers import Scorer, ScoreRequest, run_workers

__all__ = [
    "Component",
    "JudgeConfig",
    "PatchSizeComponent",
    "Reward",
    "RewardConfig",
    "Score",
    "ScoreRequest",
    "Scorer",
    "TestsComponent",
    "Verdict",
    "compose",
    "judge",
    "judge_tree",
    "run_workers",
]
