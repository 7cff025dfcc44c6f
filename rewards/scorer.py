"""Scores diffs: reads the change, measures the components side by side, composes the reward.

    the change ──┬── component without a gate ──────────────────┐
                 ├── tests ◄── verdict ──┬── gated, now open ───┼──► compose ──► Reward
                 │                       └── gated ◄── linters ─┘
                 └── gated by a cheap one: if that is shut, neither verdict nor linters

A component waits for its gate alone, and asks for the verdict or the lint report only behind it:
what nobody asks for is not made. Both are made once for all patches of a task that make the same
tree: at the same time, where the others wait, or later, from memory or the store.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import anyio

from patchgym.datasets.task import Task
from patchgym.sandbox import LintReport

from . import telemetry
from .base import Reward, Score, Verdict
from .composite import NOT_TAKEN, compose, is_open
from .config import Part, RewardConfig
from .makers import Judge, Lint, Makers
from .measuring import unknown_score
from .scene import Conduct, Scene
from .score_store import ScoreStore
from .subjects import Subject, Subjects


class Scorer:
    """Rewards of diffs, for one event loop."""

    def __init__(
        self,
        config: RewardConfig,
        *,
        verdict: Judge,
        lint: Lint | None = None,
        repositories: Path,
        deadline: float,
        store: ScoreStore | None = None,
        context: str = "",
        processes: int = 1,
    ) -> None:
        """`verdict` and `lint` make what components need, each within `deadline` seconds, waits
        for sandboxes included. `repositories` is the folder of the materialized bundled ones;
        `context` names whatever else changes verdicts, such as the image and time limits;
        `processes` is how many heavy components are measured at once. Raises ValueError when two
        components want one linter with different settings."""
        self.config = config
        self.shared = 0
        """Rewards whose verdict another patch of this process had brought."""
        self._subjects = Subjects(repositories, store)
        self._makers = Makers(
            config,
            verdict,
            lint,
            deadline=deadline,
            store=store,
            context=context,
            processes=processes,
        )

    @property
    def judged(self) -> int:
        """Verdicts taken, those that came too late included."""
        return self._makers.judged

    @property
    def linted(self) -> int:
        """Lint reports made."""
        return self._makers.linted

    @property
    def hits(self) -> int:
        """Verdicts, lint reports and scores that were in the store."""
        return self._makers.hits

    async def score(self, task: Task, diff: bytes, conduct: Conduct | None = None) -> Reward:
        """The reward of `diff`. What can't be known is unknown; only cancellation is raised."""
        started = time.monotonic()
        try:
            subject = await self._subjects.read(task, diff)
        except Exception as error:  # the repository's or the machine's fault, never the diff's
            return _unreadable(self.config, error, time.monotonic() - started)
        scoring = _Scoring(self.config, self._makers, subject, conduct)
        scores = await scoring.scores()
        self.shared += scoring.shared
        return compose(
            self.config,
            scores,
            scoring.verdict or NOT_TAKEN,
            seconds=time.monotonic() - started,
            shared=scoring.shared or scoring.stored,
        )


class _Scoring:
    """One diff on its way."""

    def __init__(
        self, config: RewardConfig, makers: Makers, subject: Subject, conduct: Conduct | None
    ) -> None:
        self.verdict: Verdict | None = None
        self.shared = self.stored = False
        self._config, self._makers = config, makers
        self._subject, self._conduct = subject, conduct
        self._judging = anyio.Lock()
        self._scores: dict[str, Score] = {}
        self._done = {part.name: anyio.Event() for part in config.parts}

    async def scores(self) -> list[Score]:
        """One a part, in their order."""
        async with anyio.create_task_group() as group:
            for part in self._config.parts:
                group.start_soon(self._measure, part)
        return [self._scores[part.name] for part in self._config.parts]

    async def _measure(self, part: Part) -> None:
        self._scores[part.name] = await self._score(part)
        self._done[part.name].set()

    async def _score(self, part: Part) -> Score:
        if part.gate:
            await self._done[part.gate].wait()
            gate = self._scores[part.gate]
            if not is_open(part, gate):
                return _shut(part, gate)
        with telemetry.component(part.name) as told:
            score = await self._scored(part)
            told.ended(score)
        return score

    async def _scored(self, part: Part) -> Score:
        """The score of a part whose gate is open."""
        started = time.monotonic()
        needs = part.component.needs
        verdict = await self._verdict() if "verdict" in needs else None
        report = await self._makers.report(self._subject) if "lint" in needs else None
        if isinstance(report, str):
            return unknown_score(part, report, time.monotonic() - started)
        score = await self._makers.measured(part, self._scene(verdict, report), self._subject)
        return replace(score, seconds=time.monotonic() - started)

    async def _verdict(self) -> Verdict:
        async with self._judging:  # once here, so that it is not counted as shared with ourselves
            if self.verdict is None:
                found = await self._makers.verdict(self._subject)
                self.verdict, self.shared, self.stored = found
        return self.verdict

    def _scene(self, verdict: Verdict | None, report: LintReport | None) -> Scene:
        subject = self._subject
        return Scene(
            task=subject.task,
            diff=subject.diff,
            change=subject.change,
            gold=subject.gold,
            verdict=verdict,
            lint=report,
            conduct=self._conduct,
        )


def _shut(part: Part, gate: Score) -> Score:
    """The score of a part whose gate did not open; unknown when nobody knows whether it would."""
    if gate.status == "unknown":
        return unknown_score(part, f"its gate {gate.name} is unknown: {gate.detail}")
    return Score(
        name=part.name,
        value=None,
        weight=part.signed,
        status="gated",
        detail=f"{gate.name} is {_value(gate)}, not above {part.gate_above:g}",
        version=part.component.version,
    )


def _value(score: Score) -> str:
    return "gated itself" if score.value is None else f"{score.value:g}"


def _unreadable(config: RewardConfig, error: Exception, seconds: float) -> Reward:
    """The reward of a diff that could not even be looked at."""
    detail = f"the change can't be read: {type(error).__name__}: {error}"
    scores = [unknown_score(part, detail) for part in config.parts]
    return Reward.unknown(detail, scores=scores, seconds=seconds)
