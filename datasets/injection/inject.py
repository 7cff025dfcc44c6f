"""Puts bugs into a library until there are enough tasks.

    survey ─► places ─┬─► choose a batch ─► try it ─► validate what fits ─► count ─┐
                      └────────────────────────────────────────────────────────────┘

A batch's results count in the order of choice, and its size depends on nothing but what was kept,
so that the same seed makes the same tasks with any number of jobs. What was tried is on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from patchgym.datasets.environment import Environment
from patchgym.datasets.images import TaskImages
from patchgym.datasets.injection.source import NotEditable, Place, Source, compiles
from patchgym.datasets.repository import read_files
from patchgym.datasets.task import Task, TaskError
from patchgym.datasets.trial import TrialConfig
from patchgym.datasets.validate import validate
from patchgym.sandbox import ImageStore, Pool, SandboxError

from .choose import Chooser, Mutant, parts
from .coverage import Survey, code_files, survey
from .ground import Ground, image_of, with_coverage
from .mutations import MUTATIONS, places
from .origin import Origin
from .records import Records
from .report import Ending, Injection, Statistics
from .tasks import task_of
from .trials import Bench, Limits, Tried, tests_for

BATCH = 24  # mutants between two choices
TRIES = 20  # for each task that is asked for, and 50 more: then it is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionConfig:
    """What to make."""

    count: int
    """Tasks."""
    seed: int = 0
    jobs: int = 2
    """Sandboxes at once."""
    kinds: tuple[str, ...] = tuple(MUTATIONS)
    """Kinds of bugs; see `mutations.MUTATIONS`."""
    combine: float = 0.2
    """Share of the mutants that get two bugs."""
    limits: Limits = field(default_factory=Limits)
    repeats: int = 2
    """Times that validation runs the empty and the gold patch."""


class Progress(Protocol):
    """Hears how it goes."""

    def stage(self, text: str) -> None:
        """What is done now."""
        ...

    def counted(self, statistics: Statistics) -> None:
        """A batch is through."""
        ...


async def inject(
    origin: Origin,
    environment: Environment,
    work: Path,
    store: ImageStore,
    config: InjectionConfig,
    progress: Progress,
) -> Injection:
    """Make `config.count` tasks, or as many as the code gives. `work` is a folder for records.

    Raises TaskError when no test passes, ImageError, SandboxError.
    """
    records = Records(work / _key(origin, environment, config))
    await anyio.to_thread.run_sync(records.open)
    try:
        return await _inject(origin, environment, records, store, config, progress)
    finally:
        records.close()


async def _inject(
    origin: Origin,
    environment: Environment,
    records: Records,
    store: ImageStore,
    config: InjectionConfig,
    progress: Progress,
) -> Injection:
    progress.stage("making images")
    plain = await image_of(origin, environment, store)
    tracing = await with_coverage(environment, store)
    traced = await image_of(origin, tracing, store)
    async with Pool(plain.spec, size=config.jobs) as pool:
        ground = Ground(origin=origin, environment=environment, pool=pool, image=plain)
        found = await anyio.to_thread.run_sync(records.survey)
        if found is None:
            progress.stage("running all tests, three times")
            other = Ground(origin=origin, environment=tracing, pool=pool, image=traced)
            found = await survey(ground, other)
            await anyio.to_thread.run_sync(records.keep_survey, found)
        progress.stage("looking for places")
        sources = await anyio.to_thread.run_sync(_read_sources, origin, found)
        all_places = await anyio.to_thread.run_sync(_places, sources, config.kinds)
        run = _Run(
            ground=ground,
            survey=found,
            sources=sources,
            records=records,
            config=config,
            validation=TrialConfig(images=TaskImages(store), timeout=environment.timeout),
        )
        return await run.until_enough(all_places, progress)


def _key(origin: Origin, environment: Environment, config: InjectionConfig) -> str:
    """What results of tries depend on."""
    parts = [origin.tree, asdict(environment), asdict(config.limits), config.repeats]
    text = json.dumps(parts, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_sources(origin: Origin, found: Survey) -> dict[str, Source]:
    """The files that tests run and that can be read."""
    wanted = [path for path in code_files(origin.paths()) if found.lines.get(path)]
    sources = {}
    for path, data in read_files(origin.repository, origin.commit, wanted).items():
        try:
            sources[path] = Source(path, data or b"")
        except NotEditable:
            continue
    if not sources:
        raise TaskError(f"{origin.name}: its tests run none of its files: give a recipe")
    return sources


def _places(sources: Mapping[str, Source], kinds: Sequence[str]) -> list[Place]:
    return [place for path in sorted(sources) for place in places(sources[path], kinds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One injection under way."""

    ground: Ground
    survey: Survey
    sources: Mapping[str, Source]
    records: Records
    config: InjectionConfig
    validation: TrialConfig

    async def until_enough(self, found: Sequence[Place], progress: Progress) -> Injection:
        """Batch after batch."""
        config, tasks, statistics = self.config, list[Task](), Statistics()
        chooser = Chooser(
            found, self.sources, self.survey, seed=config.seed, combine=config.combine
        )
        statistics.places = chooser.covered
        statistics.tests = len(self.survey.tests)
        statistics.unstable = len(self.survey.unstable)
        progress.stage("trying bugs")
        reason = ""
        while len(tasks) < config.count:
            missing = config.count - len(tasks)
            batch = chooser.batch(min(BATCH, 3 * missing + 3))
            if not batch:
                reason = f"all {chooser.covered} places that tests run were tried"
                break
            if statistics.tried > TRIES * config.count + 50:
                reason = f"{statistics.tried} mutants were tried: too few of them fit"
                break
            for mutant, (ending, task) in zip(batch, await self._settle(batch), strict=True):
                if len(tasks) == config.count:
                    break  # what comes later in the batch is not counted
                statistics.count(mutant, ending)
                if task is not None:
                    tasks.append(task)
                    chooser.kept(mutant)
            progress.counted(statistics)
        return Injection(tasks=tuple(tasks), statistics=statistics, reason=reason)

    async def _settle(self, batch: Sequence[Mutant]) -> list[tuple[Ending, Task | None]]:
        """What becomes of each mutant; all tries first, as those keep hold of their sandboxes."""
        endings: dict[Mutant, Ending] = {}
        fit: dict[Mutant, Task] = {}

        async def attempt(waiting: Iterator[Mutant]) -> None:
            async with Bench(self.ground, self.survey, self.config.limits) as bench:
                for mutant in waiting:  # shared: each worker takes the next one
                    endings[mutant], tried = await self._attempt(mutant, bench)
                    if tried is not None:
                        fit[mutant] = await anyio.to_thread.run_sync(self._task, mutant, tried)

        async def confirm(waiting: Iterator[Mutant]) -> None:
            for mutant in waiting:
                endings[mutant] = await self._confirm(mutant, fit[mutant])

        await self._share(attempt, batch)
        await self._share(confirm, [mutant for mutant in batch if mutant in fit])
        return [
            (endings[mutant], fit[mutant] if endings[mutant] == "kept" else None)
            for mutant in batch
        ]

    async def _share(
        self,
        work: Callable[[Iterator[Mutant]], Coroutine[Any, Any, None]],
        mutants: Sequence[Mutant],
    ) -> None:
        """`jobs` workers on one list."""
        waiting = iter(mutants)
        async with anyio.create_task_group() as workers:
            for _ in range(min(self.config.jobs, len(mutants))):
                workers.start_soon(work, waiting)

    async def _attempt(self, mutant: Mutant, bench: Bench) -> tuple[Ending, Tried | None]:
        """How a mutant ends; with what the tests said when it fits."""
        if not all(compiles(data) for data in mutant.files.values()):
            return "no-compile", None
        if len(mutant.places) > 1:
            for part in parts(mutant, self.sources, self.survey):
                alone = await self._try(part, bench)
                if alone.fate == "unseen":
                    return "part-unseen", None
                if alone.fate in ("hung", "broken"):
                    return alone.fate, None
        tried = await self._try(mutant, bench)
        return tried.fate, tried if tried.fate == "fit" else None

    async def _try(self, mutant: Mutant, bench: Bench) -> Tried:
        known = self.records.tried(mutant.key)
        if known is not None:
            return known
        tried = await bench.attempt(mutant.files, tests_for(mutant.tests, self.survey))
        await anyio.to_thread.run_sync(self.records.keep_tried, mutant.key, tried)
        return tried

    def _task(self, mutant: Mutant, tried: Tried) -> Task:
        return task_of(
            mutant,
            tried,
            origin=self.ground.origin,
            environment=self.ground.environment,
            survey=self.survey,
            sources=self.sources,
            seed=self.config.seed,
        )

    async def _confirm(self, mutant: Mutant, task: Task) -> Ending:
        """Whether a task holds in fresh sandboxes. Raises SandboxError when those fail."""
        ending = self.records.verdict(mutant.key)
        if ending is None:
            answer = await validate(
                task,
                self.ground.pool,
                repeats=self.config.repeats,
                config=self.validation,
            )
            if answer.status == "unknown":
                raise SandboxError(f"{answer.reason}: the same command goes on from here")
            leaks = any(each.kind == "leak" for each in answer.symptoms)
            ending = "kept" if answer.ok and not leaks else "invalid"
            ending = "flaky" if answer.flaky else ending
            await anyio.to_thread.run_sync(self.records.keep_verdict, mutant.key, ending)
        return ending
