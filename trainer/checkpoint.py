"""Checkpoints of a learner with Orbax: written whole or not at all; the last few and the best stay.

    save: free space? -> <step>.orbax-checkpoint-tmp -> rename to <step> -> sizes -> drop the others
                |                 |
                +- CheckpointError+  (the partial is removed, earlier checkpoints stay)

A checkpoint holds the parameters, the optimizer's state, the step (also the policy's version), a
JSON mapping, and what it is ranked by. It restores onto any device layout: each array takes the
sharding that the learner's own has. Directories that a killed process left half written or half
removed are gone once the store is opened. Where several processes train one learner, each of them
has a store of the same folder, which all can read and write, and calls it as the others do.
"""

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from .checkpoint_contents import abstract, describe, difference, restore_params, size
from .checkpoint_errors import CheckpointError, first_line, quiet, reading, require_space
from .checkpoint_files import read_value, write_sizes, write_value
from .checkpoint_processes import first_process, once
from .checkpoint_ranking import Measure, Value, best_step, kept_steps
from .learner import Learner, LearnerState
from .model.decoder import Params
from .profiling import stage

__all__ = ["CheckpointError", "CheckpointStore"]

_PARTIAL = ".orbax-checkpoint-tmp"
_SLACK_BYTES = 1 << 20
"""Room for the checkpoint's own metadata and directories."""
_QUIET = 0.3
"""Seconds without a trace of a failed write after which it counts as over."""
_LATE = 5.0
"""Seconds that a failed write is waited for at most."""


class CheckpointStore:
    """The checkpoints in one folder. Calls block; they may come from several threads."""

    def __init__(self, folder: Path, *, keep: int = 1, best: bool = True) -> None:
        """Open `folder`, creating it.

        `keep` is the number of newest checkpoints that stay; with `best` the best one stays, too.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self._folder = folder.absolute()
        self._keep, self._keep_best = keep, best
        self._lock = threading.RLock()
        self._pending: tuple[int, int] | None = None  # step, bytes needed
        self._held: set[int] = set()
        once("open", self._remove_partials)
        self._manager = self._open()
        found = {step: read_value(self._folder / str(step)) for step in self.steps()}
        self._values = {step: value for step, value in found.items() if value}

    def steps(self) -> list[int]:
        """Steps that have a complete checkpoint, ascending."""
        with self._lock:
            writing = {self._pending[0]} if self._pending else set[int]()
            return sorted(set(self._manager.all_steps()) - writing)

    def best(self) -> int | None:
        """The step of the best checkpoint; None when none was measured."""
        with self._lock:
            there = set(self.steps())
            return best_step({step: one for step, one in self._values.items() if step in there})

    def choose(self, which: str) -> int:
        """The step that `which` means: `latest`, `best`, or a number; CheckpointError if none."""
        there = self.steps()
        step = {"latest": max(there, default=None), "best": self.best()}.get(which)
        if step is None and which.isdecimal() and int(which) in there:
            step = int(which)
        if step is None:
            why = "none was measured" if which == "best" and there else "it is not there"
            raise CheckpointError(
                f"{self._folder}: no checkpoint {which!r}: {why}; "
                f"there {_are(there)}, latest and best"
            )
        return step

    def note(self, step: int, measure: Measure, value: float) -> None:
        """Rank the checkpoint of `step`, be it written already or yet to come.

        A held-out pass rate replaces a mean reward, and never the other way round.
        """
        with self._lock:
            known = self._values.get(step)
            if known and known.measure == "heldout" and measure != "heldout":
                return
            self._values[step] = Value(measure=measure, value=value)
            if measure == "heldout":
                self._held.discard(step)
            if step in self.steps():
                self._keep_value(step)

    def hold(self, step: int) -> None:
        """A held-out pass rate of `step` is under way: its checkpoint stays until it is noted."""
        self._held.add(step)  # no lock: the event loop asks, and a save may take its time

    def save(
        self,
        learner: Learner,
        *,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = True,
    ) -> None:
        """Write `learner` as it is now, under its step; a step that is already there is kept.

        With `wait` false it returns once the state is on the host, and writing goes on beside the
        next step; its error then comes from the next `save` or from `wait`. Nothing is copied on
        the device: JAX does not give away an array's memory while the host reads it. Raises
        CheckpointError; earlier checkpoints are never harmed.
        """
        with self._lock:
            self.wait()
            step = learner.step
            if step in self._manager.all_steps():
                return
            self._write(learner.state, step, metadata or {})
            if wait:
                self.wait()

    def wait(self) -> None:
        """Return when nothing is being written; raises the CheckpointError of what was."""
        with self._lock:
            if self._pending is None:
                return
            (step, needed), self._pending = self._pending, None
            with self._failing_whole(step, needed):
                self._manager.wait_until_finished()
            once("written", lambda: self._finish(step))
            if step in self._values:
                self._keep_value(step)
            self._drop_old()

    def restore(self, learner: Learner, *, step: int | None = None) -> Mapping[str, Any] | None:
        """Put `learner` where the newest checkpoint (or that of `step`) was.

        Returns the checkpoint's metadata, or None, with the learner untouched, when there is none.
        Raises CheckpointError for one that is damaged or belongs to another model or optimizer.
        """
        with self._lock:
            self.wait()
            chosen = self._manager.latest_step() if step is None else step
            if chosen is None:
                return None
            target = jax.tree.map(abstract, learner.state)
            arguments = ocp.args.Composite(
                state=ocp.args.StandardRestore(target), metadata=ocp.args.JsonRestore()
            )
            with self._reading(chosen):
                self._compare(chosen, describe(learner.state))
                found = self._manager.restore(chosen, args=arguments)
            learner.restore(found["state"])
            metadata: Mapping[str, Any] = found["metadata"]
            return metadata

    def params(self, like: Params, *, step: int) -> Params:
        """The parameters in the checkpoint of `step`, and neither optimizer nor anything else.

        `like` are arrays of the same model: its values are not looked at. Raises CheckpointError
        as `restore` does.
        """
        with self._lock:
            self.wait()
            with self._reading(step):
                self._compare(step, describe({"params": like}))
                found: Params = restore_params(self._folder / str(step) / "state", like)
            return found

    def close(self) -> None:
        """Wait for what is being written, then let go of the folder."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def _write(self, state: LearnerState, step: int, metadata: Mapping[str, Any]) -> None:
        needed = size(state) + _SLACK_BYTES
        if first_process():
            self._remove_partials()
        require_space(self._folder, needed)
        about = {"step": step, "policy_version": step, **metadata}
        if value := self._values.get(step):
            about["value"] = asdict(value)
        json.dumps(about)  # a value that JSON can't hold is the caller's mistake: before any write
        with self._failing_whole(step, needed), stage("checkpoint"):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), metadata=ocp.args.JsonSave(about)
                ),
            )
        self._pending = (step, needed)

    def _compare(self, step: int, wanted: Mapping[str, Any]) -> None:
        """Raises CheckpointError when the arrays of `step` can't go where `wanted` are."""
        saved = describe(self._manager.item_metadata(step)["state"])
        if all(name.startswith("params/") for name in wanted):
            saved = {name: one for name, one in saved.items() if name.startswith("params/")}
        if words := difference(saved, wanted):
            raise CheckpointError(f"{self._folder / str(step)}: {words}")

    def _reading(self, step: int) -> AbstractContextManager[None]:
        return reading(self._folder, step, [other for other in self.steps() if other != step])

    def _finish(self, step: int) -> None:
        with suppress(OSError):  # a checkpoint without its sizes is read unchecked
            write_sizes(self._folder / str(step))

    def _keep_value(self, step: int) -> None:
        path = self._folder / str(step)
        if not first_process():
            return
        try:
            if read_value(path) != self._values[step]:
                write_value(path, self._values[step])
        except OSError as error:
            raise CheckpointError(
                f"{path}: its value can't be written ({first_line(error)}); make room, then resume"
            ) from error

    def _drop_old(self) -> None:
        """Remove the checkpoints that need not stay; each is out of sight before it is removed."""
        steps = self.steps()
        kept = kept_steps(
            steps, self._values, last=self._keep, keep_best=self._keep_best, held=self._held
        )
        dropped = [step for step in steps if step not in kept]
        if not dropped:
            return
        for step in dropped:
            self._values.pop(step, None)
        once("dropped", lambda: self._remove(dropped))
        self._manager.reload()

    def _remove(self, steps: Sequence[int]) -> None:
        for step in steps:
            path = self._folder / str(step)
            path.rename(path.with_name(f"{step}{_PARTIAL}-dropped"))
        self._remove_partials()

    def _open(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(create=True, enable_async_checkpointing=True)
        handlers = {
            "state": ocp.StandardCheckpointHandler(),
            "metadata": ocp.JsonCheckpointHandler(),
        }
        try:
            return ocp.CheckpointManager(self._folder, options=options, item_handlers=handlers)
        except OSError as error:
            raise CheckpointError(
                f"{self._folder}: can't be used for checkpoints ({first_line(error)}); "
                "name a folder that can be written"
            ) from error

    @contextmanager
    def _failing_whole(self, step: int, needed: int) -> Iterator[None]:
        """Turn a failed write into a CheckpointError, and remove what it left."""
        try:
            with quiet():
                yield
        except (OSError, ValueError, RuntimeError) as error:
            free = shutil.disk_usage(self._folder).free
            self._abandon()
            raise CheckpointError(
                f"{self._folder / str(step)}: the checkpoint could not be written "
                f"({first_line(error)}); it needs {needed:,} bytes and {free:,} are free; "
                "make room or put the run's folder elsewhere, then resume"
            ) from error

    def _abandon(self) -> None:
        """Forget a failed write: a fresh manager, and no trace of the step on disk."""
        self._pending = None
        # Closing waits for the writer's other threads, which would create files after the removal;
        # what it raises is the failure at hand.
        with suppress(OSError, ValueError, RuntimeError):
            self._manager.close()
        if first_process():
            self._remove_late()
        self._manager = self._open()

    def _remove_partials(self) -> None:
        for path in self._partials():
            shutil.rmtree(path)

    def _remove_late(self) -> None:
        """Remove what a failed write left, until nothing of it comes back.

        TensorStore gives up at the first array that fails; the others' writes, under way in its own
        threads, make their directories anew for some moments. What comes later still goes before
        the next write.
        """
        quiet_since = time.monotonic()
        deadline = quiet_since + _LATE
        while time.monotonic() < min(quiet_since + _QUIET, deadline):
            for path in self._partials():
                shutil.rmtree(path, ignore_errors=True)
                quiet_since = time.monotonic()
            time.sleep(0.02)

    def _partials(self) -> list[Path]:
        return list(self._folder.glob(f"*{_PARTIAL}*")) if self._folder.is_dir() else []


def _are(steps: list[int]) -> str:
    if not steps:
        return "are none"
    return f"is step {steps[0]}" if len(steps) == 1 else f"are steps {', '.join(map(str, steps))}"
