"""All checks, in the order in which they are run and listed."""

from __future__ import annotations

from importlib import import_module

from .contract import CAPABILITIES
from .expect import LISTED, Check

MODULES = (
    *("commands", "output", "timeouts", "background", "streams", "files", "snapshots"),
    *("git", "patches", "leases", "reset", "limits", "isolation"),
)
"""Importing one lists its checks."""

for _name in MODULES:
    import_module(f"{__package__}.{_name}")

CHECKS: tuple[Check, ...] = tuple(
    sorted(LISTED, key=lambda each: CAPABILITIES.index(each.capability))
)
"""Every check, by capability."""

__all__ = ["CHECKS", "Check"]
