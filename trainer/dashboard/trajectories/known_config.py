"""A run's settings, read once as long as their file stays what it is."""

from __future__ import annotations

from functools import lru_cache

from patchgym.trainer.config import RunConfig
from patchgym.trainer.errors import UserError
from patchgym.trainer.run_folder import RunFolder


def known_config(folder: RunFolder) -> RunConfig | None:
    """The settings of a run; None for those of another version, which can't be read."""
    try:
        changed = folder.config.stat().st_mtime_ns
    except OSError:
        return None
    return _read(folder, changed)


@lru_cache(maxsize=16)
def _read(folder: RunFolder, changed: int) -> RunConfig | None:
    del changed  # names the version of the file
    try:
        return folder.load_config()
    except UserError:
        return None
