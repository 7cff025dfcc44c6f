"""The folder of a supervised run: a run's, so that `patchgym runs` and policies read it.

run.toml  run.sqlite  checkpoints/    as in any run
sft.toml                              the run's own settings
curve.png                             loss by step, trained and held out
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchgym.datasets.journal import write_whole
from patchgym.trainer.errors import RunError
from patchgym.trainer.run_folder import RunFolder, create_run

from .config import SftConfig, as_run_config, load_sft_config, sft_to_toml

_FILE = "sft.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class SftFolder:
    """A supervised run's folder."""

    run: RunFolder

    @property
    def config(self) -> Path:
        """The effective settings."""
        return self.run.path / _FILE

    def load_config(self) -> SftConfig:
        """The settings that the run was started with."""
        return load_sft_config(self.config, [])

    def write_config(self, config: SftConfig) -> None:
        """Keep the settings. Blocking."""
        write_whole(self.config, sft_to_toml(config).encode())


def is_supervised(folder: RunFolder) -> bool:
    """Whether the run is a supervised one."""
    return (folder.path / _FILE).is_file()


def open_supervised(folder: RunFolder) -> SftFolder:
    """The folder of a supervised run; RunError when it is another run's."""
    if not is_supervised(folder):
        raise RunError(
            f"{folder.path}: no supervised run (it has no {_FILE}): a training run goes on with "
            "patchgym train --resume"
        )
    return SftFolder(run=folder)


def create_supervised(config: SftConfig, steps: int) -> SftFolder:
    """Make the folder of a new run of `steps` updates; RunError when it is there already."""
    folder = SftFolder(run=create_run(as_run_config(config, steps)))
    folder.write_config(config)
    return folder
