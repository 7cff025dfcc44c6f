"""Makes what rewards rest on, each once: verdicts, lint reports, values of heavy components.

asked for ──► in memory? ──► being made? ──► in the store? ──► made, with a deadline ──► kept
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from patchgym.datasets.task import Task
from patchgym.sandbox import Linter, LintReport, PatchgymError, lint_recipe

from .base import Score, Verdict
from .config import Part, RewardConfig
from .lint_source import distinct
from .measuring import Measurer
from .once import Once
from .plain import canonical, digest
from .scene import Scene
from .score_store import ScoreStore, store_key
from .subjects import Subject

Judge = Callable[[Task, bytes], Awaitable[Verdict]]
Lint = Callable[[Task, bytes, Sequence[Linter]], Awaitable[LintReport]]
REMEMBERED = 256  # of each kind, in memory
T = TypeVar("T")


class Makers:
    """For one event loop. Nothing but cancellation is raised."""

    def __init__(
        self,
        config: RewardConfig,
        judge: Judge,
        lint: Lint | None,
        *,
        deadline: float,
        store: ScoreStore | None,
        context: str,
        processes: int,
    ) -> None:
        """As `Scorer`. Raises ValueError for linters that can't be run at once."""
        self.judged = self.linted = self.hits = 0
        self._judge, self._lint, self._deadline = judge, lint, deadline
        self._store, self._context = store, context
        self._measurer = Measurer(processes)
        self._linters = linters_of(config)
        self._settings = digest([lint_recipe(), [[each.tool, each] for each in self._linters]])
        self._identities = {part.name: _identity(part) for part in config.parts}
        self._verdicts: Once[tuple[Verdict, bool]] = Once(REMEMBERED)
        self._reports: Once[LintReport | str] = Once(REMEMBERED)
        self._scores: Once[Score] = Once(REMEMBERED)

    async def verdict(self, subject: Subject) -> tuple[Verdict, bool, bool]:
        """The verdict; whether another patch of this process brought it; whether the store did."""
        key = store_key("verdict 1", subject.digest, subject.change.tree, self._context)

        async def make() -> tuple[Verdict, bool]:
            kept = await self._kept(key, Verdict)
            if kept is not None:
                return kept, True
            verdict = await self._judged(subject)
            if verdict.status != "unknown":
                await self._keep(key, verdict)
            return verdict, False

        (verdict, stored), shared = await self._verdicts.get(
            key, make, keep=lambda made: made[0].status != "unknown"
        )
        return verdict, shared, stored

    async def report(self, subject: Subject) -> LintReport | str:
        """What all linters that components asked for say, or why there is no report."""
        if self._lint is None:
            return "no sandbox with linters was given to the scorer"
        if subject.change.problem:
            return f"the diff does not apply: {subject.change.problem}"
        if not subject.change.files:
            return LintReport()
        key = store_key("lint 1", subject.digest, subject.change.tree, self._settings)

        async def make() -> LintReport | str:
            kept = await self._kept(key, LintReport)
            if kept is not None:
                return kept
            made = await self._linted(subject)
            if _is_whole(made):
                await self._keep(key, made)
            return made

        return (await self._reports.get(key, make, keep=_is_whole))[0]

    async def measured(self, part: Part, scene: Scene, subject: Subject) -> Score:
        """The part's score; a heavy part is measured once for all patches that are alike to it."""
        needs = part.component.needs
        known = ("verdict" not in needs or _is_known(scene.verdict)) and (
            "lint" not in needs or _is_whole(scene.lint)
        )
        if not part.component.heavy or "conduct" in needs or not known:
            return await self._measurer.measure(part, scene)
        key = store_key(
            "score 1",
            subject.digest,
            subject.change.tree,
            self._identities[part.name],
            self._context if "verdict" in needs else "",
            self._settings if "lint" in needs else "",
        )

        async def make() -> Score:
            kept = await self._kept(key, Score)
            if kept is not None:
                return kept
            score = await self._measurer.measure(part, scene)
            if score.status == "measured":
                await self._keep(key, score)
            return score

        score, _ = await self._scores.get(key, make, keep=lambda made: made.status == "measured")
        return replace(score, weight=part.signed)

    async def _judged(self, subject: Subject) -> Verdict:
        try:
            with anyio.move_on_after(self._deadline):
                verdict = await self._judge(subject.task, subject.diff)
                self.judged += 1
                return verdict
            self.judged += 1
            problem = f"no verdict within {self._deadline:g} s"
        except PatchgymError as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception as error:  # one patch's accident must not end the others
            problem = f"a fault of the judge's: {type(error).__name__}: {error}"
        return Verdict(status="unknown", evidence="infra", detail=problem)

    async def _linted(self, subject: Subject) -> LintReport | str:
        assert self._lint is not None
        try:
            with anyio.move_on_after(self._deadline):
                report = await self._lint(subject.task, subject.diff, self._linters)
                self.linted += 1
                return report
        except Exception as error:
            return f"no lint report: {type(error).__name__}: {error}"
        return f"no lint report within {self._deadline:g} s"

    async def _kept(self, key: str, kind: type[T]) -> T | None:
        found = None if self._store is None else await self._store.get(key, kind)
        self.hits += found is not None
        return found

    async def _keep(self, key: str, value: object) -> None:
        if self._store is not None:
            await self._store.put(key, value)


def linters_of(config: RewardConfig) -> tuple[Linter, ...]:
    """All that the components ask for, one a name. Raises ValueError, naming the components."""
    asked = [
        (part.name, linter)
        for part in config.parts
        if "lint" in part.component.needs
        for linter in part.component.linters()
    ]
    chosen = distinct(linter for _, linter in asked)
    by_name = {linter.tool.name: linter for linter in chosen}
    for name, linter in asked:
        other = by_name[linter.tool.name]
        if canonical(other) != canonical(linter):
            first = next(who for who, each in asked if each is other)
            raise ValueError(
                f"{name} and {first} want {linter.tool.name} with different settings: "
                "give one of the linters another name, or both the same settings"
            )
    return chosen


def _identity(part: Part) -> str:
    """What the value of a part depends on, beside what it looks at."""
    place = Path(part.source.partition(":")[0])
    code = hashlib.sha256(place.read_bytes()).hexdigest() if place.suffix == ".py" else ""
    return digest([part.source, part.component.version, part.component, code])


def _is_known(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.status != "unknown"


def _is_whole(report: LintReport | str | None) -> bool:
    """Whether every linter ran: one that did not may do so the next time."""
    return isinstance(report, LintReport) and not any(
        each.tool is not None and each.path is None for each in report.skipped
    )
