"""The run inside a session: open or restore, step after step, save however it ends, export."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread

from patchgym.trainer.errors import UserError
from patchgym.trainer.ledger import Ledger

from .folder import SftFolder
from .opening import Opened
from .record import SftRecorder
from .training import SftLoop
from .view import SftProgress, SftView, heldout_words

if TYPE_CHECKING:
    from patchgym.trainer.checkpoint import CheckpointStore

_STOP_LIMIT = 120.0
"""Seconds that a stopped run may take for its checkpoint."""

End = Literal["finished", "stopped", "failed"]


@dataclass(slots=True, kw_only=True)
class Session:
    """One run of the command, from its start to its end."""

    opened: Opened
    folder: SftFolder
    resume: bool
    progress: SftProgress
    view: SftView
    earlier: dict[str, Any] = field(default_factory=dict)
    """Summary of the run before it was resumed."""
    stopped: bool = False

    def stop(self) -> None:
        """It was asked to end."""
        self.stopped = True
        self.enter("stopping: writing a checkpoint (again to leave at once)")

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.progress.phase = phase
        self.view.say(phase)


async def run_session(session: Session) -> None:
    """Run to the last step, or until it is cancelled; the folder is left usable either way."""
    opened, folder = session.opened, session.folder.run
    started, before = time.monotonic(), float(session.earlier.get("seconds", 0.0))
    async with Ledger(folder.ledger) as ledger:
        recorder = SftRecorder(ledger)
        end: End = "failed"
        try:
            store = await anyio.to_thread.run_sync(_open_store, session)
            recorder.begin(opened.learner.step, opened.facts())
            recorder.state("running", before)
            try:
                await _steps(session, ledger, recorder, store)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_LIMIT):
                    await _save(session, store)
                    await anyio.to_thread.run_sync(store.close)
            await _export(session, recorder)
            end = "finished"
        finally:
            state: End = "stopped" if session.stopped else end
            recorder.state(state, before + time.monotonic() - started)


def _open_store(session: Session) -> CheckpointStore:
    from patchgym.trainer.checkpoint import CheckpointStore

    opened = session.opened
    section = opened.config.checkpoint
    store = CheckpointStore(session.folder.run.checkpoints, keep=section.keep, best=section.best)
    if session.resume:
        store.restore(opened.learner)
    return store


async def _save(session: Session, store: CheckpointStore) -> None:
    """A checkpoint of the present step, once; none of the weights that the run began with."""
    if session.opened.learner.step > 0:
        await anyio.to_thread.run_sync(store.save, session.opened.learner)


async def _steps(
    session: Session, ledger: Ledger, recorder: SftRecorder, store: CheckpointStore
) -> None:
    opened, plan = session.opened, session.opened.plan
    loop = SftLoop(
        opened.config, opened.learner, opened.dataset, plan, should_stop=lambda: session.stopped
    )
    measured = {row["step"] for row in session.earlier.get("heldout", ())}
    session.progress.step = opened.learner.step
    while True:
        step = opened.learner.step
        if plan.ends_epoch(step) and step not in measured:
            measured.add(step)
            await _measure(session, loop, recorder, store)
            await ledger.flush()
        if loop.done:
            return
        session.progress.phase = f"epoch {step // plan.per_epoch + 1} of {plan.epochs}"
        await _step(session, loop, recorder)
        await ledger.flush()
        if opened.learner.step % opened.config.checkpoint.every == 0:
            await _save(session, store)


async def _measure(
    session: Session, loop: SftLoop, recorder: SftRecorder, store: CheckpointStore
) -> None:
    """Measure the held-out share, should there be one; its checkpoint is ranked by the loss."""
    if not session.opened.dataset.heldout:
        return
    session.progress.phase = "measuring the held-out share"
    result = await _interruptible(loop.measure)
    step = session.opened.learner.step
    recorder.measured(step, result)
    store.note(step, "heldout", -result.loss)
    await _save(session, store)
    session.progress.heldout.append((step, result.loss, result.accuracy))
    words = heldout_words(result.loss, result.accuracy)
    session.view.say(f"held out at step {step}: {words}")


async def _step(session: Session, loop: SftLoop, recorder: SftRecorder) -> None:
    done = await _interruptible(loop.step)
    metrics, progress = done.metrics, session.progress
    recorder.step(done.step, metrics)
    progress.step = done.step + 1
    progress.losses.append(metrics["loss"])
    progress.rate = metrics["tokens"] / metrics["seconds"]
    session.view.say(
        f"step {progress.step}/{progress.steps}: loss {metrics['loss']:.4f}, "
        f"rate {metrics['learning_rate']:.2e}, {progress.rate:.0f} tokens/s"
    )


async def _interruptible(work: Any) -> Any:
    """The result of blocking work; a stop that it noticed ends the run here."""
    from patchgym.trainer.learner import StepInterrupted

    try:
        return await anyio.to_thread.run_sync(work)
    except StepInterrupted:
        await anyio.lowlevel.checkpoint()  # the run is being stopped: this is where it ends
        raise


async def _export(session: Session, recorder: SftRecorder) -> None:
    from patchgym.trainer.weights import export_folder

    opened, target = session.opened, session.opened.config.run.export
    if not target:
        return
    session.enter(f"writing the weights to {target}")
    try:
        await anyio.to_thread.run_sync(
            export_folder, opened.model, opened.learner.params, opened.tokenizer, Path(target)
        )
    except OSError as error:
        raise UserError(
            f"--export {target}: can't be written: {error.strerror}; the run is whole: go on with "
            f"patchgym sft --resume {session.folder.run.path.name} --export FOLDER"
        ) from None
    recorder.exported(target)
