"""A training session: signals, set-up, the run itself, and what is left behind however it ends."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio
import anyio.to_thread
from rich.console import Console

from .config import RunConfig, config_to_toml
from .domain import Domain
from .ledger import Ledger
from .live import LiveView
from .progress import Progress
from .recorder import Recorder
from .report import print_summary, summarize, write_curve
from .resources import Resources, open_domain, open_resources
from .resume import Restored, restore_groups
from .run_folder import RunFolder, locked
from .stopping import watch_signals
from .training import Training
from .trajectory_store import TrajectoryStore

# Seconds that a stopped run may take for its checkpoint.
_STOP_LIMIT = 120.0

End = Literal["finished", "stopped", "failed"]


@dataclass(slots=True)
class _Session:
    config: RunConfig
    folder: RunFolder
    resume: bool
    progress: Progress
    stopped: bool = False
    began: bool = False
    """Everything was opened: from here on the folder is worth keeping."""
    started: float = field(default_factory=time.monotonic)
    refresh: Callable[[], None] = lambda: None
    earlier: dict[str, Any] = field(default_factory=dict)
    """Summary of the run before it was resumed."""

    def stop(self) -> None:
        """It was asked to end."""
        self.stopped = True
        self.progress.enter("stopping: writing a checkpoint (again to leave at once)")


def train(config: RunConfig, folder: RunFolder, *, resume: bool) -> int:
    """Run to the last step, print the summary; the exit code (0 finished, 130 stopped)."""
    console = Console()
    progress = Progress(title=folder.path.name, steps=config.run.steps)
    session = _Session(config, folder, resume, progress)
    with locked(folder):
        folder.config.write_text(config_to_toml(config))
        try:
            with LiveView(progress, console) as view:
                anyio.run(_supervise, session, view)
        except BaseException:
            if not session.began and not resume:
                shutil.rmtree(folder.path)  # it never got as far as to hold anything
            raise
        summary = summarize(folder)
        if summary["history"]:
            write_curve(summary, folder.curve)
            summary["curve"] = str(folder.curve)
    print_summary(summary, console)
    name = folder.path.name
    example = "after-000-s0" if config.evaluation.samples else "g00000-m0"
    if session.stopped:
        console.print(f"stopped; go on with: patchgym train --resume {name}", soft_wrap=True)
        return 130
    console.print(
        f"again: patchgym runs show {name}; one rollout: "
        f"patchgym runs show {name} --trajectory {example}",
        soft_wrap=True,
    )
    return 0


def dry_run(config: RunConfig) -> int:
    """Check image, tasks and shapes, and say what would run; nothing is trained or written."""
    console = Console()
    progress = Progress()
    with LiveView(progress, console) as view:
        lines = anyio.run(_dry_run, config, progress, view)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    return 0


async def _dry_run(config: RunConfig, progress: Progress, view: LiveView) -> list[str]:
    found: list[tuple[Domain, str]] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_draw, view, lambda: None)
        async with AsyncExitStack() as stack:
            found.append(await open_domain(config, progress, stack))
        group.cancel_scope.cancel()
    domain, words = found[0]
    steps, group_section = config.run.steps, config.group
    rollouts = steps * group_section.per_step * group_section.size
    held_out = 2 * len(domain.heldout) * config.evaluation.samples
    turn = config.rollout.max_turns * config.rollout.max_new_tokens
    return [
        words,
        f"{len(domain.train)} tasks to train on, {len(domain.heldout)} held out",
        f"{steps} steps x {group_section.per_step} groups x {group_section.size} rollouts = "
        f"{rollouts}, and {held_out} for evaluation",
        f"at most {(rollouts + held_out) * turn:,} sampled tokens",
        "a real run would start now",
    ]


async def _supervise(session: _Session, view: LiveView) -> None:
    """The run beside its view and its signal watch; all end together."""
    async with anyio.create_task_group() as group:
        group.start_soon(_draw, view, lambda: session.refresh())
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, session.stop)
            await _run(session)
        group.cancel_scope.cancel()


async def _draw(view: LiveView, refresh: Callable[[], None]) -> None:
    while True:
        refresh()
        view.refresh()
        await anyio.sleep(0.5)


async def _run(session: _Session) -> None:
    config, folder, progress = session.config, session.folder, session.progress
    store = TrajectoryStore(folder.trajectories)
    async with Ledger(folder.ledger) as ledger:
        end: End = "failed"
        if session.resume:
            session.earlier = await anyio.to_thread.run_sync(summarize, folder)
        before = float(session.earlier.get("seconds", 0.0))
        try:
            ledger.meta("state", "running")
            async with AsyncExitStack() as stack:
                resources = await open_resources(
                    config,
                    folder,
                    progress,
                    stack,
                    resume=session.resume,
                    stopped=lambda: session.stopped,
                )
                restored = Restored()
                if session.resume:
                    restored = await anyio.to_thread.run_sync(
                        restore_groups, folder.ledger, store, resources.learner.step
                    )
                    ledger.record("DELETE FROM steps WHERE step >= ?", (resources.learner.step,))
                training = Training(
                    config,
                    resources,
                    ledger=ledger,
                    recorder=Recorder(ledger, store, config.failures),
                    progress=progress,
                    restored=restored,
                )
                session.began = True
                session.refresh = partial(_refresh, training, resources, progress)
                await _stages(session, training, resources, ledger)
            end = "finished"
        finally:
            ledger.meta("state", "stopped" if session.stopped else end)
            ledger.meta("seconds", before + time.monotonic() - session.started)


async def _stages(
    session: _Session, training: Training, resources: Resources, ledger: Ledger
) -> None:
    """Evaluate, train, evaluate; a checkpoint however it ends."""
    config = session.config
    measure = config.evaluation.samples > 0
    try:
        if measure and resources.learner.step == 0:
            await training.evaluate("before", resources.domain.heldout)
        elif measure and "before" in session.earlier.get("heldout", {}):
            training.recall("before", session.earlier["heldout"]["before"])
        if resources.learner.step < config.run.steps:
            await training.train()
        if measure:
            await training.evaluate("after", resources.domain.heldout)
    finally:
        session.progress.listener("writing a checkpoint")
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _STOP_LIMIT) as scope:
            await resources.save()
            await ledger.flush()
        if scope.cancelled_caught:
            ledger.event("checkpoint_timed_out", limit=_STOP_LIMIT)


def _refresh(training: Training, resources: Resources, progress: Progress) -> None:
    training.refresh()
    statistics = resources.policy.statistics()
    rate = resources.token_rate(statistics.sampled_tokens)
    progress.tokens_per_second = 0.0 if math.isnan(rate) else rate
