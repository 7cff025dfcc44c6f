"""Settings of profile captures."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST, LONGEST = 1.0, 120.0
"""Seconds that a capture may last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """Captures of what the accelerator and the host's threads do: see docs/profiles.md."""

    seconds: float = 10.0
    """Length of captures by SIGUSR1 and of automatic ones, 1 to 120."""
    on_wait: float = 0.0
    """Seconds that the learner may wait for groups before a capture is made of it; 0: none is."""
    automatic: int = 3
    """Most captures that waits may make in a run."""
    disk_mib: int = 2048
    """MiB for all captures of a run; past it the oldest are removed."""

    def __post_init__(self) -> None:
        if not SHORTEST <= self.seconds <= LONGEST:
            raise ValueError(f"seconds is {self.seconds!r}: it must be {SHORTEST:g} to {LONGEST:g}")
        if not self.on_wait >= 0:
            raise ValueError(f"on_wait is {self.on_wait!r}: it must be at least 0 seconds")
        if self.automatic < 0:
            raise ValueError(f"automatic is {self.automatic!r}: it must be at least 0")
        if self.disk_mib < 1:
            raise ValueError(f"disk_mib is {self.disk_mib!r}: it must be at least 1")
