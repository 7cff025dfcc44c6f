"""A training session: signals, set-up, the run itself, and what is left behind however it ends."""

from __future__ import annotations

import math
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from rich.console import Console

from patchgym.sandbox.reaper import current_owner

from .config import REPOSITORIES, RunConfig, config_to_toml
from .domain import Domain
from .going_on import GoingOn, prepare
from .heartbeat import beat
from .ledger import Ledger
from .live import JsonView, LiveView, View
from .now import keep_now, note_now
from .profiling import ProfileService
from .progress import Progress
from .recorder import Recorder
from .report import print_summary, summarize, write_curve
from .resources import Resources, open_domain, open_resources
from .resume import Restored, restore_groups
from .reward_words import reward_lines
from .run_folder import RunFolder, locked
from .session_state import Session, opening_limit, stuck_limit
from .stopping import STOPPED, LastResort, watch_signals
from .supervision import end_of, one_line, watch
from .telemetry.opening import open_telemetry
from .training import Training
from .trajectory_store import TrajectoryStore
from .watchdog import thread_stacks

if TYPE_CHECKING:
    from .multihost.hosts import Hosts


def train(
    config: RunConfig,
    folder: RunFolder,
    *,
    resume: bool,
    going: GoingOn | None = None,
    as_json: bool = False,
    hosts: Hosts | None = None,
) -> int:
    """Run to the last step, print the summary; the exit code (0 finished, 130 stopped).

    `going` says how a resumed run goes on; None as it was left. With `as_json` the standard output
    gets one document a line, the last of them the summary. `hosts` are the learner's other
    processes, where it has any.
    """
    console = Console(stderr=as_json)
    progress = Progress(title=folder.path.name, steps=config.run.steps)
    last_resort = LastResort(config.run.stop_limit, lambda: session.last_words())
    session = Session(config, folder, resume, progress, last_resort, going=going or GoingOn())
    session.hosts = hosts
    try:
        with locked(folder):
            view = JsonView(progress) if as_json else LiveView(progress, console)
            summary = _train(session, view)
    finally:
        last_resort.disarm()
    if isinstance(view, JsonView):
        view.tell("summary", summary)
    else:
        print_summary(summary, console)
    name = folder.path.name
    example = "after-000-s0" if config.evaluation.samples else "g00000-m0"
    if session.stopped:
        if session.end is not None:
            console.print(session.end.line(), soft_wrap=True, markup=False, highlight=False)
        console.print(f"stopped; go on with: patchgym train --resume {name}", soft_wrap=True)
        return STOPPED
    console.print(
        f"again: patchgym runs show {name}; one rollout: "
        f"patchgym runs show {name} --trajectory {example}",
        soft_wrap=True,
    )
    return 0


def _train(session: Session, view: View) -> dict[str, Any]:
    """The run itself; its summary."""
    folder = session.folder
    folder.config.write_text(config_to_toml(session.config))
    try:
        with _telemetry(session), view:
            anyio.run(_supervise, session, view)
    except BaseException:
        if not session.began and not session.resume:
            shutil.rmtree(folder.path)  # it never got as far as to hold anything
        raise
    summary = summarize(folder)
    if summary["history"] and not session.stopped:  # drawing takes seconds
        write_curve(summary, folder.curve)
        summary["curve"] = str(folder.curve)
    return summary


@contextmanager
def _telemetry(session: Session) -> Iterator[None]:
    """Spans and metrics are listened to for as long as the run lasts."""
    config, run = session.config, session.folder.path

    def tell(words: str) -> None:
        session.progress.listener(words)

    settings = tomllib.loads(config_to_toml(config))
    with open_telemetry(config.telemetry, run, settings, tell) as session.telemetry:
        yield


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
    every = config.evaluation.every
    evaluations = 2 + ((steps - 1) // every if every else 0)
    held_out = evaluations * len(domain.heldout) * config.evaluation.samples
    turn = config.rollout.max_turns * config.rollout.max_new_tokens
    return [
        words,
        f"{len(domain.train)} tasks to train on, {len(domain.heldout)} held out",
        f"{steps} steps x {group_section.per_step} groups x {group_section.size} rollouts = "
        f"{rollouts}, and {held_out} for evaluation",
        f"at most {(rollouts + held_out) * turn:,} sampled tokens",
        *(reward_lines(config.reward) if config.environment.use in REPOSITORIES else ()),
        "a real run would start now",
    ]


async def _supervise(session: Session, view: View) -> None:
    """The run beside its view, its heartbeat and its watches; all end together."""
    async with anyio.create_task_group() as group:
        group.start_soon(_draw, view, lambda: session.refresh())
        group.start_soon(beat, session.folder)
        group.start_soon(keep_now, session)
        group.start_soon(_profiles(session).run)
        if session.telemetry is not None:
            group.start_soon(session.telemetry.follow, lambda: session.gauges())
        watched = thread_stacks, session.stuck
        limits = opening_limit(session.config), stuck_limit(session.config)
        group.start_soon(watch, session.opens, session.opening, limits[0], *watched)
        group.start_soon(watch, session.moves, session.what, limits[1], *watched)
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, session.stop)
            await _run(session)
        group.cancel_scope.cancel()


def _profiles(session: Session) -> ProfileService:
    return ProfileService(
        session.folder.profile,
        session.config.profile,
        observe=lambda: session.observe(),
        tell=lambda line: session.progress.listener(line),
    )


async def _draw(view: View, refresh: Callable[[], None]) -> None:
    while True:
        refresh()
        view.refresh()
        await anyio.sleep(0.5)


async def _run(session: Session) -> None:
    """Everything between the ledger's opening and its close; how it ended is its last entry."""
    async with Ledger(session.folder.ledger) as ledger:
        if session.resume:
            session.earlier = await anyio.to_thread.run_sync(summarize, session.folder)
        before = float(session.earlier.get("seconds", 0.0))
        session.ledger = ledger
        ledger.on_stuck = session.stuck_disk
        ledger.meta("state", "running")
        ledger.event("began", owner=current_owner().labels(), resumed=session.resume)
        error: BaseException | None = None
        try:
            if session.resume:
                await _prepare(session, ledger)
            await _open_and_train(session, ledger)
        except BaseException as caught:
            error = caught
            raise
        finally:
            end = end_of(error, step=session.step, stage=session.progress.phase)
            if end.how == "stopped" and session.end is not None:
                end = session.end
            session.end = end
            note_now(session, ledger)
            ledger.meta("end", asdict(end))
            ledger.meta("state", end.how)
            ledger.meta("seconds", before + time.monotonic() - session.started)


async def _prepare(session: Session, ledger: Ledger) -> None:
    """What is asked of the folder before it goes on, on disk before anything else is."""
    for line in await anyio.to_thread.run_sync(prepare, session.going, session.folder, ledger):
        session.progress.listener(line)
    await ledger.flush()


async def _open_and_train(session: Session, ledger: Ledger) -> None:
    config, folder, progress = session.config, session.folder, session.progress
    store = TrajectoryStore(folder.trajectories)
    async with AsyncExitStack() as stack:
        resources = await open_resources(
            config,
            folder,
            progress,
            stack,
            resume=session.resume,
            stopped=lambda: session.end is not None,
            hosts=session.hosts,
        )
        session.resources = resources
        restored = Restored()
        if session.resume:
            restored = await anyio.to_thread.run_sync(
                restore_groups, folder.ledger, store, resources.learner.step
            )
        training = Training(
            config,
            resources,
            ledger=ledger,
            recorder=Recorder(ledger, store, config.failures),
            progress=progress,
            restored=restored,
            on_step=session.on_step,
        )
        session.began = True
        session.gauges = training.gauges
        session.observe = training.observe
        session.refresh = partial(_refresh, training, resources, progress)
        await _stages(session, training, resources, ledger)


async def _stages(
    session: Session, training: Training, resources: Resources, ledger: Ledger
) -> None:
    """Evaluate, train, evaluate; a checkpoint however it ends."""
    try:
        await _measure_and_train(session, training, resources)
    except Exception as error:
        # The error is what the run ends by, not what else it breaks.
        try:
            await _save(session, resources, ledger)
        except Exception as other:
            error.add_note(f"and no checkpoint was written: {one_line(other)}")
            ledger.event("checkpoint_failed", words=one_line(other))
        raise
    except BaseException:
        await _save(session, resources, ledger)
        raise
    await _save(session, resources, ledger)


async def _measure_and_train(session: Session, training: Training, resources: Resources) -> None:
    config = session.config
    measure = config.evaluation.samples > 0
    if measure and resources.learner.step == 0:
        await training.held_out.measure("before", resources.domain.heldout)
    elif measure and "before" in session.earlier.get("heldout", {}):
        training.held_out.recall("before", session.earlier["heldout"]["before"])
    if resources.learner.step < config.run.steps:
        await training.train()
    if measure:
        await training.held_out.measure("after", resources.domain.heldout)


async def _save(session: Session, resources: Resources, ledger: Ledger) -> None:
    """A checkpoint of the present step, after everything that its weights have seen is on disk.

    Shielded: once a run is to end, `run.stop_limit` is the limit of this, too.
    """
    session.progress.listener("writing a checkpoint")
    with anyio.CancelScope(shield=True):
        await ledger.flush()
        await resources.save()


def _refresh(training: Training, resources: Resources, progress: Progress) -> None:
    training.refresh()
    statistics = resources.policy.statistics()
    rate = resources.token_rate(statistics.sampled_tokens)
    progress.tokens_per_second = 0.0 if math.isnan(rate) else rate
