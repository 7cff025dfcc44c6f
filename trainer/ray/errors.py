"""Which of the trainer's errors come through from a host as what they are."""

from __future__ import annotations

from patchgym.datasets.task import TaskError
from patchgym.sandbox.ray.frames import carry
from patchgym.trainer.errors import ConfigError


def carry_errors() -> None:
    """At both ends, before the first frame."""
    carry(ConfigError, TaskError)
