"""One run is one folder; this module names what lies in it, and keeps two processes out of one."""

from __future__ import annotations

import datetime
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .config import RunConfig, config_to_toml, load_config
from .errors import RunError


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The effective configuration."""
        return self.path / "run.toml"

    @property
    def ledger(self) -> Path:
        """What happened, in SQLite."""
        return self.path / "run.sqlite"

    @property
    def trajectories(self) -> Path:
        """One file for every rollout."""
        return self.path / "trajectories"

    @property
    def checkpoints(self) -> Path:
        """Orbax checkpoints, by step."""
        return self.path / "checkpoints"

    @property
    def profile(self) -> Path:
        """Captures of the JAX profiler, by step and time."""
        return self.path / "profile"

    @property
    def curve(self) -> Path:
        """The reward curve."""
        return self.path / "curve.png"

    def load_config(self) -> RunConfig:
        """The configuration that the run was started with."""
        return load_config(self.config)


def create_run(config: RunConfig) -> RunFolder:
    """Make the folder of a new run; RunError when it exists or can't be written."""
    name = config.run.name or datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = RunFolder((Path(config.run.folder) / name).resolve())
    try:
        folder.path.mkdir(parents=True)
        folder.trajectories.mkdir()
        folder.config.write_text(config_to_toml(config))
    except FileExistsError:
        raise RunError(
            f"{folder.path}: exists already; go on with --resume {name}, or pick another --run.name"
        ) from None
    except OSError as error:
        raise RunError(f"{folder.path}: can't be made: {error}; pick --run.folder") from None
    return folder


def find_run(name: str, root: Path = Path("runs")) -> RunFolder:
    """The run that `name` means: a folder, a name below `root`, or `latest`."""
    if name == "latest":
        known = list_runs(root)
        if not known:
            raise RunError(f"no runs in {root.resolve()}: start one with patchgym train")
        return known[-1]
    for path in (Path(name), root / name):
        if (path / "run.toml").is_file():
            return RunFolder(path.resolve())
    raise RunError(f"no run {name!r}: it is neither a run folder nor a name in {root.resolve()}")


def list_runs(root: Path = Path("runs")) -> list[RunFolder]:
    """All runs below `root`, oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if (path / "run.toml").is_file()]
    found.sort(key=lambda path: (path / "run.toml").stat().st_mtime)
    return [RunFolder(path.resolve()) for path in found]


@contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Hold the run; RunError when another process does. The lock dies with its process."""
    handle = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder.path}: another process is running it") from None
        yield
    finally:
        os.close(handle)
