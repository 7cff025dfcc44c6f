"""All checks, in the order in which they are run and listed."""

from __future__ import annotations

from . import (
    background,
    commands,
    files,
    git,
    isolation,
    leases,
    limits,
    output,
    patches,
    reset,
    snapshots,
    streams,
    timeouts,
)
from .contract import CAPABILITIES
from .expect import LISTED, Check

MODULES = (
    *(commands, output, timeouts, background, streams, files, snapshots),
    *(git, patches, leases, reset, limits, isolation),
)
"""Importing one lists its checks."""

CHECKS: tuple[Check, ...] = tuple(
    sorted(LISTED, key=lambda each: CAPABILITIES.index(each.capability))
)
"""Every check, by capability."""

__all__ = ["CHECKS", "MODULES", "Check"]
