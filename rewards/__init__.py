"""Rewards: verdicts in fresh sandboxes, components measured beside them, workers of their own."""

from .base import Fault, Reward, Score, Verdict
from .changes import read_change
from .component import Component, Measurement, UnknownValue
from .composite import compose, total_of
from .config import Part, RewardConfig
from .lint_source import LintSource
from .scene import Change, ChangedFile, Conduct, Hunk, Line, Scene
from .score_store import ScoreStore
from .scorer import Scorer
from .verdict import JudgeConfig, judge, judge_tree
from .workers import ScoreRequest, run_workers

__all__ = [
    "Change",
    "ChangedFile",
    "Component",
    "Conduct",
    "Fault",
    "Hunk",
    "JudgeConfig",
    "Line",
    "LintSource",
    "Measurement",
    "Part",
    "Reward",
    "RewardConfig",
    "Scene",
    "Score",
    "ScoreRequest",
    "ScoreStore",
    "Scorer",
    "UnknownValue",
    "Verdict",
    "compose",
    "judge",
    "judge_tree",
    "read_change",
    "run_workers",
    "total_of",
]
