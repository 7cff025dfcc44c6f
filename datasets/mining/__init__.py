"""Tasks out of a repository's own history."""

from .candidates import Candidate
from .errors import MiningError, NoEnvironment
from .mine import (
    PLAIN,
    Environments,
    MiningConfig,
    Plan,
    Progress,
    SameEnvironment,
    Watcher,
    mine,
    plan,
    take_over,
    undone,
    write,
)
from .report import REASONS, Mined, document
from .split import Dropped, Layout
from .store import Decision, Store

__all__ = [
    "PLAIN",
    "REASONS",
    "Candidate",
    "Decision",
    "Dropped",
    "Environments",
    "Layout",
    "Mined",
    "MiningConfig",
    "MiningError",
    "NoEnvironment",
    "Plan",
    "Progress",
    "SameEnvironment",
    "Store",
    "Watcher",
    "document",
    "mine",
    "plan",
    "take_over",
    "undone",
    "write",
]
