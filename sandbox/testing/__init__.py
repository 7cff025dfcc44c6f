"""Test runs in sandboxes, as structured reports."""

from .command import TestCommand
from .report import (
    OUTCOMES,
    WORST,
    Flake,
    Outcome,
    Suspicion,
    TestEvidence,
    TestReport,
    TestRun,
    settle,
    wilson,
)
from .run import run_tests
from .words import describe

__all__ = [
    "OUTCOMES",
    "WORST",
    "Flake",
    "Outcome",
    "Suspicion",
    "TestCommand",
    "TestEvidence",
    "TestReport",
    "TestRun",
    "describe",
    "run_tests",
    "settle",
    "wilson",
]
