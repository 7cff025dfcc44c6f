"""A domain: what a run trains on. The trainer knows tasks by their id, and nothing else of them.

    domain.train, domain.heldout          the tasks
    domain.environment(task, on_stage)    a fresh environment for one rollout of a task
    domain.score(task, trajectory)        the reward of what the rollout left behind

Repositories with failing tests are one domain (`repositories.py`); `examples/` has another one with
no repository at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from patchgym.agent import Environment, Trajectory
from patchgym.rewards import Reward
from patchgym.rewards.registry import load_object

from .errors import ConfigError


class OnStage(Protocol):
    """Is told what a rollout comes to, so that its waits have names."""

    def __call__(self, stage: str, /, *, sandbox: str = "") -> None:
        """It is in `stage` from now on; an empty one is what it was in before it needed a sandbox
        (`image`, `lease wait`, `checkout`). `sandbox` names the one that it has got."""
        ...


class Problem(Protocol):
    """A task, as far as the trainer looks into it."""

    @property
    def id(self) -> str:
        """Unique among the run's tasks."""
        ...


class Domain(Protocol):
    """Tasks with their environments and their rewards."""

    @property
    def train(self) -> Sequence[Problem]:
        """What is trained on."""
        ...

    @property
    def heldout(self) -> Sequence[Problem]:
        """What is measured before and after, and never trained on; may be empty."""
        ...

    def environment(self, task: Any, on_stage: OnStage) -> Environment:
        """A fresh environment for one rollout; `on_stage` is told of waits (`lease wait`)."""
        ...

    async def score(self, task: Any, trajectory: Trajectory) -> Reward:
        """The reward; `total` is None when it can't be known. Called by reward workers."""
        ...

    def expect(self, tasks: Sequence[Any]) -> None:
        """These come next: whatever they need may be made ready now."""
        ...


@runtime_checkable
class Imaged(Protocol):
    """A domain that knows what image each task runs in; so that waits can be told apart by it."""

    def image_of(self, task: Any) -> str:
        """Its name, for people."""
        ...


DomainFactory = Callable[[Mapping[str, object]], Domain]


def load_attribute(name: str, key: str) -> Any:
    """The object that `package.module:name` or `file.py:name` means; ConfigError without one.

    `key` is the configuration's key, for the error.
    """
    try:
        return load_object(name)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
