"""A reward for a page: every component with its value, what it rests on, and the lines at fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from patchgym.rewards import Reward, Score, Verdict
from patchgym.rewards.config import RewardConfig
from patchgym.trainer.dashboard.inert import inert
from patchgym.trainer.score_table import sum_of
from patchgym.trainer.verdict_words import remarks

from .diff_lines import DiffView
from .excerpt import Excerpt, excerpt

MOST_FAULTS = 40
"""Of a component, that are shown."""

Places = Mapping[tuple[str, int], tuple[str, Markup]]
"""By path and line after a diff: the line's anchor on the page, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultView:
    """A place at fault."""

    place: Markup
    """`path:line`; empty when it is about no file."""
    message: Markup
    anchor: str
    """Of the line in the diff on the page; empty when it is not there."""
    source: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreView:
    """A component."""

    name: Markup
    value: float | None
    weight: float
    adds: float | None
    status: str
    detail: Markup
    version: str
    seconds: float
    evidence: tuple[tuple[Markup, Excerpt], ...]
    faults: tuple[FaultView, ...]
    more_faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardView:
    """The reward, and the verdict under it."""

    total: float | None
    sum: Markup
    """How the total came about; empty when the settings are not known."""
    shared: bool
    seconds: float
    scores: tuple[ScoreView, ...]
    status: str
    """The verdict's."""
    evidence: str
    detail: Excerpt | None
    remarks: tuple[Markup, ...]
    """Tampering, files put back, flaky tests."""
    facts: tuple[tuple[str, str], ...]
    """How the verdict was come by."""
    timings: tuple[tuple[str, float], ...]
    """Wall seconds by phase."""
    log: Excerpt | None


def reward_view(reward: Reward, diff: DiffView, config: RewardConfig | None) -> RewardView:
    """`reward` of a rollout whose work is `diff`."""
    verdict, places = reward.verdict, places_of(diff)
    return RewardView(
        total=reward.total,
        sum=inert(sum_of(config, reward)) if config else Markup(""),
        shared=reward.shared,
        seconds=reward.seconds,
        scores=tuple(_score(score, places) for score in reward.scores),
        status=verdict.status,
        evidence=verdict.evidence,
        detail=excerpt(verdict.detail) if verdict.detail else None,
        remarks=tuple(inert(line[:1_000]) for line in remarks(verdict)),
        facts=tuple(_facts(verdict)),
        timings=tuple(verdict.timings.items()),
        log=excerpt(verdict.log) if verdict.log else None,
    )


def places_of(diff: DiffView) -> dict[tuple[str, int], tuple[str, Markup]]:
    """The lines that `diff` shows, by path and number after it."""
    return {
        (file.path, line.new): (f"diff-{at}-{line.new}", line.text)
        for at, file in enumerate(diff.files)
        for line in file.lines
        if line.new is not None
    }


def fault_messages(reward: Reward | None) -> dict[tuple[str, int], list[Markup]]:
    """What is said of each line, by path and number."""
    found: dict[tuple[str, int], list[Markup]] = {}
    for score in reward.scores if reward else ():
        for fault in score.faults[:MOST_FAULTS]:
            if fault.path and fault.line is not None:
                words = inert(f"{score.name}: {fault.message[:500]}")
                found.setdefault((fault.path, fault.line), []).append(words)
    return found


def _score(score: Score, places: Places) -> ScoreView:
    faults = score.faults[:MOST_FAULTS]
    return ScoreView(
        name=inert(score.name[:100]),
        value=score.value,
        weight=score.weight,
        adds=score.contribution if score.value is not None else None,
        status=score.status,
        detail=inert(score.detail[:1_000]),
        version=score.version[:60],
        seconds=score.seconds,
        evidence=tuple(
            (inert(str(key)[:100]), _evidence(value)) for key, value in score.evidence.items()
        ),
        faults=tuple(
            FaultView(
                place=inert(fault.path + (f":{fault.line}" if fault.line is not None else "")),
                message=inert(fault.message[:1_000]),
                anchor=places.get((fault.path, fault.line or 0), ("", Markup("")))[0],
                source=places.get((fault.path, fault.line or 0), ("", Markup("")))[1],
            )
            for fault in faults
        ),
        more_faults=len(score.faults) - len(faults),
    )


def _evidence(value: object) -> Excerpt:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = "\n".join(value) or "none"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key} {_plain(each)}" for key, each in value.items()) or "none"
    else:
        text = _plain(value)
    return excerpt(text, head=2_000, tail=500, lines=20, last_lines=5)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _facts(verdict: Verdict) -> Sequence[tuple[str, str]]:
    facts = [("status", f"{verdict.status}, by {verdict.evidence.replace('_', ' ')}")]
    if verdict.exit_code is not None:
        facts.append(("exit code of the tests", str(verdict.exit_code)))
    if verdict.rung:
        facts.append(("git applied it", str(verdict.rung)))
    if verdict.loaded is not None:
        facts.append(("changed files the tests loaded", ", ".join(verdict.loaded) or "none"))
    return facts
