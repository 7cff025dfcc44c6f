"""The learner and the checkpoints of process 0: what they do, all processes do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.checkpoint_ranking import Measure
from patchgym.trainer.config import RunConfig, config_to_toml
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.step_report import StepReport

from .gather import whole
from .hosts import LOAD_LIMIT, Hosts
from .sequences import outcome, packed


class LeadLearner(Learner):
    """A learner whose part in other processes follows it. Use one thread at a time for `train` and
    `params`; others wait."""

    def __init__(self, hosts: Hosts, config: LearnerConfig, *given: Any, seed: int) -> None:
        """`given` as of `Learner`, in a turn of `hosts`."""
        self._hosts = hosts
        super().__init__(config, *given, seed=seed)

    @property
    def params(self) -> Params:
        """The current model, whole, in this process's memory."""
        with self._hosts.turn("weights"):
            found: Params = whole(super().params, keep=True)
        return found

    def train(
        self,
        groups: Sequence[Sequence[TrainSequence]],
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> StepReport:
        """See `Learner`; raises HostLost when another process can't go on."""
        arrays, fields = packed(groups)

        def agreed() -> bool:
            stop = should_stop()
            self._hosts.tell("row", stop=stop)
            return stop

        with self._hosts.turn("train", arrays, **fields) as turn:
            report = super().train(groups, should_stop=agreed)
            turn.found = outcome(report)
        return report


class LeadCheckpoints(CheckpointStore):
    """Checkpoints of which every process writes and reads its part."""

    def __init__(self, hosts: Hosts, folder: Path, *, keep: int, best: bool) -> None:
        """As of `CheckpointStore`, in a turn of `hosts`."""
        self._hosts = hosts
        super().__init__(folder, keep=keep, best=best)

    def note(self, step: int, measure: Measure, value: float) -> None:
        """See `CheckpointStore`."""
        with self._hosts.turn("note", step=step, measure=measure, value=value):
            super().note(step, measure, value)

    def hold(self, step: int) -> None:
        """See `CheckpointStore`; the others hear of it before the next checkpoint is dropped."""
        self._hosts.later(partial(super().hold, step), "hold", step=step)

    def save(
        self, learner: Learner, *, metadata: Mapping[str, Any] | None = None, wait: bool = True
    ) -> None:
        """See `CheckpointStore`."""
        with self._hosts.turn("save", metadata=dict(metadata or {}), wait=wait):
            super().save(learner, metadata=metadata, wait=wait)

    def wait(self) -> None:
        """See `CheckpointStore`."""
        with self._hosts.turn("wait"):
            super().wait()

    def restore(self, learner: Learner, *, step: int | None = None) -> Mapping[str, Any] | None:
        """See `CheckpointStore`; the step is chosen here, for all."""
        chosen = max(self.steps(), default=None) if step is None else step
        if chosen is None:
            return None
        with self._hosts.turn("restore", step=chosen):
            return super().restore(learner, step=chosen)


def lead(
    hosts: Hosts, config: RunConfig, folder: RunFolder, model: ModelConfig, params: Params
) -> tuple[LeadLearner, LeadCheckpoints]:
    """The learner at its first step, over the devices of all processes, and its checkpoints.

    Raises ConfigError for a mesh of another number of devices, HostLost when a process can't load
    the model or reach the run's folder.
    """
    mesh = config.learner.mesh
    if mesh.devices != jax.device_count():
        raise ConfigError(
            f"learner.mesh is {mesh.fsdp} x {mesh.context} x {mesh.tensor} (fsdp, context, "
            f"tensor), which are {mesh.devices} devices; the {jax.process_count()} processes "
            f"have {jax.device_count()} together: change its sizes"
        )
    settings, path = config_to_toml(config), str(folder.checkpoints.absolute())
    with hosts.turn("load", limit=LOAD_LIMIT, config=settings):
        pass  # this process has loaded them
    with hosts.turn("learner"):
        learner = LeadLearner(hosts, config.learner, model, params, seed=config.run.seed)
    section = config.checkpoint
    with hosts.turn("checkpoints", folder=path):
        store = LeadCheckpoints(hosts, folder.checkpoints, keep=section.keep, best=section.best)
    return learner, store
