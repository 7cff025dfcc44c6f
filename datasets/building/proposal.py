"""A proposal: an environment that should do, and when it is worth a try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchgym.datasets.environment import Environment

Kind = Literal[
    "no_python_manifest",
    "python_version",
    "dependency_conflict",
    "dependency_missing",
    "compiler_missing",
    "system_library",
    "network",
    "timeout",
    "disk",
    "tests_not_collected",
    "unknown",
]
"""Why an environment could not be built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One environment to try."""

    environment: Environment
    """What to build."""
    notes: tuple[str, ...] = ()
    """What is not as one would wish, one line each, for people."""
    after: tuple[Kind, ...] = ()
    """Failures of the proposals before it that make it worth a try; empty: any."""
    check: str = ""
    """A shell command that shows whether the tests can start; empty: nothing is run."""
