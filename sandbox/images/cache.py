"""Where the sandbox package keeps what it can make again: logs, mirrors, last uses."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str = "") -> Path:
    """`name` below `$PATCHGYM_CACHE` or `patchgym` in the user's cache folder; not made here."""
    named = os.environ.get("PATCHGYM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(named) if named else Path(base) / "patchgym") / name
