"""Trajectories on disk: one file a rollout, ids and log-probabilities included.

    folder/3f/g00003-m5.rollout      two digits of a checksum of the id, then the id: 256 folders,
                                     so that none has more than a few hundred of 100,000 files
    folder/g00003-m5.json.gz         as they were once; still read

A write is atomic and synced, file and folder: when `write` returns, the rollout outlives a power
cut. What a kill leaves of one is a `.partial` file, which `sweep` takes away.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from urllib.parse import quote

from patchgym.datasets.journal import sync

from .errors import RunError
from .rollout_file import Damage, StoredRollout, decode, encode

__all__ = ["StoredRollout", "TrajectoryStore"]


class TrajectoryStore:
    """Reads and writes rollouts below `folder`; all of it blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, rollout_id: str) -> Path:
        """Where a rollout lies, or would lie."""
        new = self._new_path(rollout_id)
        old = self.folder / f"{rollout_id.replace('/', '.')}.json.gz"
        return old if not new.exists() and old.exists() else new

    def write(self, stored: StoredRollout) -> Path:
        """Store one rollout, in place of an earlier one of its id; some milliseconds, mostly of
        the disk's. RunError when it can't be written: nothing is left of it then."""
        path = self._new_path(stored.trajectory.rollout_id)
        partial = path.with_name(f"{path.name}.partial")
        try:
            if not self.folder.is_dir() and not self.folder.parent.is_dir():
                raise FileNotFoundError(f"{self.folder.parent} is gone")
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_synced(partial, encode(stored))
            os.replace(partial, path)
            sync(path.parent)
        except OSError as error:
            _forget(partial)
            raise RunError(
                f"{path}: can't be written: {error.strerror or error}; free space or pick another "
                "--run.folder, then go on with --resume"
            ) from None
        return path

    def read(self, rollout_id: str) -> StoredRollout:
        """The rollout as it was stored; RunError when it is missing or damaged."""
        return self._read(rollout_id, arrays=True)

    def read_text(self, rollout_id: str) -> StoredRollout:
        """Faster: the rollout without ids and log-probabilities, which are empty; for people."""
        return self._read(rollout_id, arrays=False)

    def sweep(self) -> int:
        """Take away what writers that were killed left behind; how many files that was. Only for
        whoever writes here."""
        left = [*self.folder.glob("*/*.partial"), *self.folder.glob("*.partial")]
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _new_path(self, rollout_id: str) -> Path:
        digits = f"{zlib.crc32(rollout_id.encode()) & 0xFF:02x}"
        return self.folder / digits / f"{quote(rollout_id, safe='')}.rollout"

    def _read(self, rollout_id: str, *, arrays: bool) -> StoredRollout:
        path = self.path(rollout_id)
        try:
            return decode(path.read_bytes(), rollout_id, arrays=arrays)
        except FileNotFoundError:
            raise RunError(f"no trajectory {rollout_id} in {self.folder}") from None
        except OSError as error:
            raise RunError(f"{path}: can't be read: {error.strerror or error}") from None
        except Damage as error:
            raise RunError(f"{path}: damaged trajectory: {error}") from None


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass  # the disk is at fault, and the error under way says so
