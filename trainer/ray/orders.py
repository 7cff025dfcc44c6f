"""What driver and task hosts tell each other.

What goes many times in a rollout is a tuple: a frozen dataclass with slots is pickled field by
field, in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from patchgym.agent import Completion, RolloutLimits, SampleRequest, Turn

Role = Literal["rollouts", "rewards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a host is to be."""

    role: Role
    config: str
    """The run's effective configuration, TOML."""
    slots: int
    """Sandboxes at once, of this host."""
    train: Sequence[Any] = ()
    """Tasks, for environments whose tasks are in files that hosts need not have."""
    heldout: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A rollout to act."""

    task_id: str
    rollout_id: str
    seed: int
    limits: RolloutLimits
    earlier: tuple[Turn, ...] = ()
    model: str = ""


class Staged(NamedTuple):
    """Host to driver: the rollout is in another stage, or has a sandbox."""

    stage: str
    sandbox: str = ""


class Asked(NamedTuple):
    """Host to driver: a turn to sample."""

    number: int
    request: SampleRequest


class Dropped(NamedTuple):
    """Host to driver: nobody waits for that turn any more."""

    number: int


class Answered(NamedTuple):
    """Driver to host: a turn, or why there is none."""

    number: int
    completion: Completion | None = None
    error: str = ""


class Straggles(NamedTuple):
    """Driver to host: end the rollout as a straggler, with the turns that it has."""
