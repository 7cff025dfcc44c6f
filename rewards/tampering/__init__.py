"""Tamper detection: what a diff does to its judges, told from the diff alone."""

from .base import RULES, FileChange, Rule, TamperFinding
from .inspection import inspect_changes

__all__ = ["RULES", "FileChange", "Rule", "TamperFinding", "inspect_changes"]
