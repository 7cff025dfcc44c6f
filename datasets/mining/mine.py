"""Mining: from a repository's history to tasks, with every other commit's reason.

plan   walk ─► split ─► candidates            reads git alone, starts nothing
mine   candidate ─► environment ─► trials ─► task or reason, filed at once
       `jobs` workers take the next candidate, newest first; each wakes the next by ending
write  tasks merged into the file in the order of their commits
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from patchgym.datasets.environment import Environment
from patchgym.datasets.task import Task, TaskError, task_row
from patchgym.datasets.trial import Images, Trial, TrialConfig
from patchgym.sandbox import EngineUnavailable, ImageError, PatchgymError, Pool, SandboxError
from patchgym.sandbox.errors import CheckoutError

from .candidates import Candidate, candidate_of, left_out
from .errors import MiningError, NoEnvironment
from .history import LAST, Commit, order, walk
from .report import Mined, document
from .split import Dropped, Layout
from .statement import statement
from .store import Decision, Store, key_of
from .trials import Lists, try_candidate
from .view import View, open_view

IN_A_ROW = 5  # failures of the machine after which it is no use to go on
RETRIED = ("fails-with-fix", "no-tests-ran", "not-broken")
"""Reasons that generated files may be to blame for, where the gold patch lacks some."""

PLAIN = Environment(test_command="python3 -m pytest {test_files}", report="pytest")
"""The environment where nothing better is known: pytest, and what the base image has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """What to mine, and how."""

    since: str | None = None
    """ISO date, commit (left out itself), or `last`; None is everything."""
    limit: int | None = None
    """Newest commits that are looked at."""
    max_tasks: int | None = None
    """Tasks to end with, the newest."""
    jobs: int = 1
    """Sandboxes at once."""
    repeats: int = 3
    """Runs with and without the fix each."""
    layout: Layout = field(default_factory=Layout)
    """Where the tests are."""
    name: str | None = None
    """owner/name of the repository; None: that of its remote, or its folders."""
    issues: Mapping[str, str] = field(default_factory=dict)
    """Text of issues by number."""


class Environments(Protocol):
    """Where candidates' environments come from."""

    @property
    def key(self) -> str:
        """Names how they are made; another one decides everything anew."""
        ...

    async def of(self, candidate: Candidate) -> Environment:
        """The environment of a candidate. Raises NoEnvironment, ImageError, SandboxError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SameEnvironment:
    """One environment for all."""

    environment: Environment = PLAIN

    @property
    def key(self) -> str:
        """By its content."""
        return key_of({"environment": asdict(self.environment)})

    async def of(self, candidate: Candidate) -> Environment:
        """The same."""
        return self.environment


class Watcher(Protocol):
    """Sees a run go on."""

    def looked(self, done: int, total: int) -> None:
        """So many commits were looked at."""
        ...

    def planned(self, total: int, taken_over: int) -> None:
        """So many candidates, of which so many were decided before."""
        ...

    def started(self, candidate: Candidate) -> None:
        """Its trials begin."""
        ...

    async def finished(self, candidate: Candidate, outcome: Decision | str) -> None:
        """It is decided, or the machine failed it. May raise to end the run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, in the order of commits, newest first."""

    view: View
    commits: tuple[Commit, ...]
    candidates: tuple[Candidate, ...]
    dropped: Mapping[str, Dropped]
    """By commit, for those that are no candidates."""
    keys: Mapping[str, str]
    """Under which each candidate's decision is filed, by commit."""
    known: Mapping[str, Decision]
    """Decisions of earlier runs, by commit."""


@dataclass(slots=True)
class Progress:
    """How far a run came; it can be read at any time."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    """By commit."""
    undecided: dict[str, str] = field(default_factory=dict)
    in_a_row: int = 0
    """Failures of the machine since something was decided."""
    finished: bool = False


async def plan(
    repository: Path, store: Store, config: MiningConfig, key: str, watcher: Watcher
) -> Plan:
    """Read the history. `key` names how environments are made. Raises MiningError."""
    view = await anyio.to_thread.run_sync(open_view, repository, store.view, config.name)
    since = store.last if config.since == LAST else config.since
    commits = await anyio.to_thread.run_sync(lambda: walk(view, since=since, limit=config.limit))
    candidates: list[Candidate] = []
    dropped: dict[str, Dropped] = {}
    for number, commit in enumerate(commits, 1):
        found = await anyio.to_thread.run_sync(
            candidate_of, view, commit, config.layout, config.issues
        )
        if isinstance(found, Dropped):
            dropped[commit.id] = found
        else:
            candidates.append(found)
        watcher.looked(number, len(commits))
    keys = {each.commit.id: _key(each, config, key) for each in candidates}
    found_before = {commit: store.known(filed) for commit, filed in keys.items()}
    return Plan(
        view=view,
        commits=commits,
        candidates=tuple(candidates),
        dropped=dropped,
        keys=keys,
        known={commit: each for commit, each in found_before.items() if each is not None},
    )


async def mine(
    planned: Plan,
    pool: Pool,
    images: Images,
    environments: Environments,
    store: Store,
    config: MiningConfig,
    watcher: Watcher,
    progress: Progress,
) -> None:
    """Decide every candidate that is not decided yet; `progress` tells what came of it.

    Raises MiningError where going on is of no use, EngineUnavailable.
    """
    work = _Work(
        plan=planned, pool=pool, images=images, environments=environments, store=store,
        config=config, watcher=watcher, progress=progress,
    )  # fmt: skip
    waiting = iter(planned.candidates)
    async with anyio.create_task_group() as workers:
        for _ in range(config.jobs):
            workers.start_soon(work.go, waiting)
    progress.finished = True


def take_over(planned: Plan, progress: Progress, watcher: Watcher) -> None:
    """Count what earlier runs decided."""
    progress.decisions.update(planned.known)
    watcher.planned(len(planned.candidates), len(planned.known))


def undone(planned: Plan, progress: Progress, config: MiningConfig) -> bool:
    """Whether there is a candidate to try."""
    tasks = 0
    for candidate in planned.candidates:
        decision = progress.decisions.get(candidate.commit.id)
        if decision is None:
            return True
        tasks += decision.task is not None
        if tasks == config.max_tasks:
            return False
    return False


def write(
    planned: Plan, progress: Progress, store: Store, config: MiningConfig, seconds: float
) -> Mined:
    """Merge the tasks into the file, write the report, and remember how far it came. Blocking."""
    mined = _mined(planned, progress, config, seconds)
    place = order(planned.view)
    beside = os.path.relpath(planned.view.source, store.out.resolve().parent)
    rows = [{**row, "repository": beside} for row in mined.rows]
    decided = {each.commit for each in mined.decisions}
    store.merge(rows, decided, place, config.layout.subproject)
    store.write("report.json", json.dumps(document(mined), indent=2) + "\n")
    if progress.finished and config.max_tasks is None and not mined.undecided:
        store.finish(planned.view.head)
    return mined


@dataclass(slots=True, kw_only=True)
class _Work:
    """What the workers of one run share."""

    plan: Plan
    pool: Pool
    images: Images
    environments: Environments
    store: Store
    config: MiningConfig
    watcher: Watcher
    progress: Progress
    tasks: int = 0
    """Among the candidates that were taken so far, which are the newest ones."""

    async def go(self, waiting: Iterator[Candidate]) -> None:
        """Take one candidate after another."""
        for candidate in waiting:  # shared: each worker takes the next one
            decision = self.progress.decisions.get(candidate.commit.id)
            if decision is None:
                decision = await self._try(candidate)
            self.tasks += decision is not None and decision.task is not None
            if self.config.max_tasks is not None and self.tasks >= self.config.max_tasks:
                return

    async def _try(self, candidate: Candidate) -> Decision | None:
        """Decide one; None when the machine failed."""
        self.watcher.started(candidate)
        commit = candidate.commit.id
        try:
            decision, lasting = await self._decide(candidate)
        except EngineUnavailable:
            raise
        except SandboxError as error:
            line = " ".join(str(error).split())
            self.progress.undecided[commit] = line
            self.progress.in_a_row += 1
            await self.watcher.finished(candidate, line)
            if self.progress.in_a_row >= IN_A_ROW:
                raise MiningError(
                    f"the machine failed {IN_A_ROW} candidates in a row, at last with: {line}: "
                    "mend that, and the same command goes on"
                ) from error
            return None
        if lasting:
            await anyio.to_thread.run_sync(self.store.keep, self.plan.keys[commit], decision)
        self.progress.decisions[commit] = decision
        self.progress.in_a_row = 0
        await self.watcher.finished(candidate, decision)
        return decision

    async def _decide(self, candidate: Candidate) -> tuple[Decision, bool]:
        """What becomes of a candidate, and whether the next run need not ask again."""
        commit = candidate.commit.id
        lasting = True
        made: Task | Dropped
        try:
            made = await self._make(candidate)
        except NoEnvironment as error:
            made, lasting = Dropped(reason="environment", detail=_line(error)), error.lasting
        except ImageError as error:  # a registry that was away may be back another day
            made, lasting = Dropped(reason="environment", detail=_line(error)), False
        except CheckoutError as error:
            made = Dropped(reason="missing-objects", detail=_line(error))
        except TaskError as error:
            made = Dropped(reason="invalid", detail=_line(error))
        if isinstance(made, Dropped):
            return Decision(commit=commit, dropped=made), lasting
        return Decision(commit=commit, task=task_row(made)), True

    async def _make(self, candidate: Candidate) -> Task | Dropped:
        environment = await self.environments.of(candidate)
        made = Dropped(reason="no-source")
        for gold in candidate.golds:
            draft = draft_of(candidate, gold, environment)
            trial = await Trial.of(draft, self.pool, TrialConfig(images=self.images))
            found = await try_candidate(trial, self.config.repeats)
            if isinstance(found, Lists):
                return task_of(candidate, draft, found, self.config)
            made = found
            if found.reason not in RETRIED:
                break
        return made


def draft_of(candidate: Candidate, gold: str, environment: Environment) -> Task:
    """The task before its tests are known: one that runs all of its test files."""
    modules = candidate.split.modules
    return Task(
        id=candidate.task_id,
        statement="A draft.",
        base_commit=candidate.base,
        gold_patch=gold,
        fail_to_pass=tuple(f"{path}::all" for path in modules),
        test_files=modules,
        test_patch=candidate.test_patch,
        repository=str(candidate.repository),
        environment=environment,
    )


def task_of(
    candidate: Candidate, draft: Task, lists: Lists, config: MiningConfig
) -> Task | Dropped:
    """The task of a candidate whose tests are known."""
    text = statement(
        messages=candidate.messages,
        issues=candidate.issues,
        failures=lists.failures,
        gold_patch=draft.gold_patch,
    )
    if not text:
        return Dropped(reason="no-statement")
    notes = {
        "source": "mined",
        "commit": candidate.commit.id,
        "date": candidate.commit.date,
        "kind": "merge" if len(candidate.commit.parents) > 1 else "commit",
        "fails": ", ".join(f"{number} {outcome}" for outcome, number in lists.before.items()),
        "repeats": str(config.repeats),
        "issues": ", ".join(candidate.issues),
        "subproject": candidate.subproject,
        "left_out": left_out(candidate.split, draft.gold_patch),
    }
    return replace(
        draft,
        statement=text,
        fail_to_pass=lists.fail_to_pass,
        pass_to_pass=lists.pass_to_pass,
        flaky=lists.flaky,
        repo=candidate.repo,
        provenance={name: note for name, note in notes.items() if note},
    )


def _mined(planned: Plan, progress: Progress, config: MiningConfig, seconds: float) -> Mined:
    """The run in the order of commits; cut behind the last task where their number is limited."""
    decisions: list[Decision] = []
    tasks = 0
    for commit in planned.commits:
        dropped = planned.dropped.get(commit.id)
        decision = progress.decisions.get(commit.id)
        if dropped is not None:
            decision = Decision(commit=commit.id, dropped=dropped)
        if decision is None:
            continue
        decisions.append(decision)
        tasks += decision.task is not None
        if tasks == config.max_tasks:
            break
    kept = {each.commit for each in decisions}
    return Mined(
        decisions=tuple(decisions),
        undecided=dict(progress.undecided),
        taken_over=sum(commit in kept for commit in planned.known),
        candidates=sum(commit in kept for commit in planned.keys) + len(progress.undecided),
        seconds=seconds,
    )


def _key(candidate: Candidate, config: MiningConfig, environments: str) -> str:
    return key_of(
        {
            "commit": candidate.commit.id,
            "base": candidate.base,
            "name": candidate.name,
            "repo": candidate.repo,
            "layout": asdict(config.layout),
            "repeats": config.repeats,
            "environments": environments,
            "issues": candidate.issues,
        }
    )


def _line(error: PatchgymError) -> str:
    return " ".join(str(error).split())[:300]
