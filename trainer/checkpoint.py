"""Checkpoints of a learner with Orbax: written whole or not at all, the last few kept.

    save: free space? -> copy -> <step>.orbax-checkpoint-tmp -> rename to <step> -> drop the oldest
                |                        |
                +--- CheckpointError <---+  (the partial is removed, earlier checkpoints stay)

A checkpoint holds the parameters, the optimizer's state, the step (also the policy's version), and
a JSON mapping. It restores onto any device layout: each array takes the sharding that the learner's
own has. Directories that a killed process left half written are removed when the store is opened.
"""

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from .errors import UserError
from .learner import Learner, LearnerState

_PARTIAL = ".orbax-checkpoint-tmp"
_SLACK_BYTES = 1 << 20
"""Room for the checkpoint's own metadata and directories."""


class CheckpointError(UserError):
    """A checkpoint can't be written or read; one line that says where, why, and what to do."""


class CheckpointStore:
    """The checkpoints in one folder. Calls block; make them from one thread at a time."""

    def __init__(self, folder: Path, *, keep: int = 1) -> None:
        """Open `folder`, creating it; `keep` is the number of newest checkpoints that stay."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self._folder = folder.absolute()
        self._keep = keep
        self._pending: tuple[int, int] | None = None  # step, bytes needed
        self._remove_partials()
        self._manager = self._open()

    def steps(self) -> list[int]:
        """Steps that have a complete checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(
        self,
        learner: Learner,
        *,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = True,
    ) -> None:
        """Write `learner` as it is now, under its step; a step that is already there is kept.

        With `wait` false it returns once the state is copied, and writing goes on beside the next
        step; its error then comes from the next `save` or from `wait`. Raises CheckpointError;
        earlier checkpoints are never harmed.
        """
        self.wait()
        step = learner.step
        if step in self._manager.all_steps():
            return
        state = learner.state
        needed = _bytes(state) + _SLACK_BYTES
        self._check_space(needed)
        if not wait:
            # The next step consumes the optimizer's arrays while the writer still reads.
            state = jax.tree.map(jnp.copy, state)
        about = {"step": step, "policy_version": step, **(metadata or {})}
        json.dumps(about)  # a value that JSON can't hold is the caller's mistake: before any write
        with self._failing_whole(step, needed):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), metadata=ocp.args.JsonSave(about)
                ),
            )
        self._pending = (step, needed)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return when nothing is being written; raises the CheckpointError of what was."""
        if self._pending is None:
            return
        (step, needed), self._pending = self._pending, None
        with self._failing_whole(step, needed):
            self._manager.wait_until_finished()

    def restore(self, learner: Learner, *, step: int | None = None) -> Mapping[str, Any] | None:
        """Put `learner` where the newest checkpoint (or that of `step`) was.

        Returns the checkpoint's metadata, or None, with the learner untouched, when there is none.
        Raises CheckpointError for one that can't be read or belongs to another model.
        """
        self.wait()
        chosen = self._manager.latest_step() if step is None else step
        if chosen is None:
            return None
        target = jax.tree.map(_abstract, learner.state)
        try:
            with _quiet():
                found = self._manager.restore(
                    chosen,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardRestore(target), metadata=ocp.args.JsonRestore()
                    ),
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._folder / str(chosen)}: this checkpoint can't be restored "
                f"({_first_line(error)}); remove it to go on from an earlier one, "
                "or use the model it was made with"
            ) from error
        learner.restore(found["state"])
        metadata: Mapping[str, Any] = found["metadata"]
        return metadata

    def close(self) -> None:
        """Wait for what is being written, then let go of the folder."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def _open(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=self._keep, create=True, enable_async_checkpointing=True
        )
        try:
            return ocp.CheckpointManager(self._folder, options=options)
        except OSError as error:
            raise CheckpointError(
                f"{self._folder}: can't be used for checkpoints ({_first_line(error)}); "
                "name a folder that can be written"
            ) from error

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < needed:
            raise CheckpointError(
                f"{self._folder}: a checkpoint needs {needed:,} bytes and {free:,} are free; "
                "make room or put the run's folder elsewhere, then resume"
            )

    @contextmanager
    def _failing_whole(self, step: int, needed: int) -> Iterator[None]:
        """Turn a failed write into a CheckpointError, and remove what it left."""
        try:
            with _quiet():
                yield
        except (OSError, ValueError, RuntimeError) as error:
            free = shutil.disk_usage(self._folder).free
            self._abandon()
            raise CheckpointError(
                f"{self._folder / str(step)}: the checkpoint could not be written "
                f"({_first_line(error)}); it needs {needed:,} bytes and {free:,} are free; "
                "make room or put the run's folder elsewhere, then resume"
            ) from error

    def _abandon(self) -> None:
        """Forget a failed write: a fresh manager, and no trace of the step on disk."""
        self._pending = None
        # Closing waits for the writer's other threads, which would create files after the removal;
        # what it raises is the failure at hand.
        with suppress(OSError, ValueError, RuntimeError):
            self._manager.close()
        self._remove_partials()
        self._manager = self._open()

    def _remove_partials(self) -> None:
        if self._folder.is_dir():
            for path in self._folder.glob(f"*{_PARTIAL}*"):
                shutil.rmtree(path)


def _bytes(state: LearnerState) -> int:
    """Size of all arrays; what compression saves is not counted on."""
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(state))


def _abstract(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, type and sharding of `leaf`: where its restored value must go."""
    return jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype), sharding=leaf.sharding)


def _first_line(error: BaseException) -> str:
    """The part of a long message that says what happened, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-75:]}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Orbax from logging a page of tracebacks beside an error that we raise ourselves."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
