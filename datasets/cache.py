"""Where downloads and derived files are kept between runs."""

from __future__ import annotations

from pathlib import Path

from patchgym.sandbox.images.cache import cache_folder


def cache_dir() -> Path:
    """`$PATCHGYM_CACHE`, or `patchgym` in the user's cache folder; made when missing."""
    path = cache_folder()
    path.mkdir(parents=True, exist_ok=True)
    return path


def repositories_dir() -> Path:
    """Where the repositories of bundled tasks are materialized."""
    return cache_dir() / "repositories"
