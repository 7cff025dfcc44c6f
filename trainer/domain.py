"""A domain: what a run trains on. The trainer knows tasks by their id, and nothing else of them.

    domain.train, domain.heldout          the tasks
    domain.environment(task, on_stage)    a fresh environment for one rollout of a task
    domain.score(task, trajectory)        the reward of what the rollout left behind

Repositories with failing tests are one domain (`repositories.py`); `examples/` has another one with
no repository at all.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from patchgym.agent import Environment, Trajectory
from patchgym.rewards import Reward

from .errors import ConfigError

OnStage = Callable[[str], None]


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


DomainFactory = Callable[[Mapping[str, object]], Domain]


def load_attribute(name: str, key: str) -> Any:
    """The object that `package.module:name` or `file.py:name` means; ConfigError without one.

    `key` is the configuration's key, for the error.
    """
    source, found, attribute = name.partition(":")
    if not found or not attribute:
        raise ConfigError(f"{key}: {name!r} is not of the form module:name or file.py:name")
    try:
        module = _load_file(Path(source)) if source.endswith(".py") else _import(source)
        return getattr(module, attribute)
    except FileNotFoundError:
        raise ConfigError(f"{key}: no such file: {source}") from None
    except AttributeError:
        raise ConfigError(f"{key}: {source} has no {attribute!r}") from None
    except ImportError as error:
        raise ConfigError(f"{key}: {source} can't be imported: {error}") from None


def _import(name: str) -> Any:
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(f"patchgym_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
