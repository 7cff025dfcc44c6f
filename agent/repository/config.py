"""The limits of a repository environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from patchgym.datasets.cache import repositories_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryConfig:
    """Limits of the tools. Raises ValueError on values that can't work."""

    command_seconds: float = 120.0
    """Seconds for one `bash` command."""
    tests_seconds: float = 300.0
    """Seconds for one `run_tests`."""
    output_characters: int = 10_000
    """Most characters of one observation, but for a few words around them."""
    view_lines: int = 200
    """Most lines of one `view`."""
    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories; the lease's own, if that has another."""

    def __post_init__(self) -> None:
        for name in ("command_seconds", "tests_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be > 0")
        if self.output_characters < 200 or self.view_lines < 1:
            raise ValueError("output_characters is 200 or more, view_lines 1 or more")
