"""Where downloads and derived files are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$PATCHGYM_CACHE`, or `patchgym` in the user's cache folder; made when missing."""
    named = os.environ.get("PATCHGYM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(named) if named else Path(base) / "patchgym"
    path.mkdir(parents=True, exist_ok=True)
    return path


def repositories_dir() -> Path:
    """Where the repositories of bundled tasks are materialized."""
    return cache_dir() / "repositories"
