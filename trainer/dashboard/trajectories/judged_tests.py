"""How each test came out: in the turns, in the verdict, among siblings; and whether it wavers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from patchgym.rewards import Verdict
from patchgym.trainer.dashboard.inert import one_line
from patchgym.trainer.rollout_file import StoredRollout

from .dots import Dots, dots
from .excerpt import Excerpt, excerpt

MOST = 400
"""Tests that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outing:
    """The outcomes that one rollout was judged by."""

    rollout_id: str
    patch: str
    """Digest of what was judged."""
    outcomes: Mapping[str, str]

    @classmethod
    def of(cls, stored: StoredRollout) -> Outing:
        """Of a stored rollout; without outcomes when it was never judged."""
        found = stored.reward.verdict.outcomes if stored.reward else {}
        digest = hashlib.sha256(stored.trajectory.outcome).hexdigest()
        return cls(rollout_id=stored.trajectory.rollout_id, patch=digest, outcomes=dict(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTest:
    """One test."""

    test: str
    verdict: str
    """Its outcome in the verdict; empty when it was not judged."""
    turns: Dots
    """By turn."""
    others: Dots
    """The same for other rollouts of the task, in the order given."""
    flake: str
    """What reruns of the same state came to; empty when there were none to tell of."""
    wavers: bool
    """Rollouts with one and the same patch saw it pass and not pass."""
    message: Excerpt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTests:
    """All tests of a rollout, those first that did not pass."""

    rows: tuple[JudgedTest, ...]
    left_out: int
    """Tests that are not shown."""
    counts: tuple[tuple[str, int], ...]
    """Outcome and number, by the verdict."""

    @property
    def wavering(self) -> int:
        """Tests that came out both ways with one patch."""
        return sum(row.wavers for row in self.rows)


def judged_tests(stored: StoredRollout, others: Sequence[Outing]) -> JudgedTests:
    """The tests of `stored`, with how they came out in `others`, rollouts of the same task."""
    verdict = stored.reward.verdict if stored.reward else None
    turns = [_of_turn(turn.observations) for turn in stored.trajectory.turns]
    judged: Mapping[str, str] = verdict.outcomes if verdict else {}
    known = {**judged, **{test: "" for turn in turns for test in turn}}
    order = sorted(known, key=lambda test: (judged.get(test, "") in ("passed", ""), test))
    both = _wavering([Outing.of(stored), *others])
    places = [f"turn {number}" for number in range(1, len(turns) + 1)]
    names = [one_line(each.rollout_id) for each in others]
    rows = tuple(
        JudgedTest(
            test=test,
            verdict=judged.get(test, ""),
            turns=dots(places, [turn.get(test, "") for turn in turns]),
            others=dots(names, [each.outcomes.get(test, "") for each in others]),
            flake=_flake(verdict, test),
            wavers=test in both,
            message=_message(stored, test),
        )
        for test in order[:MOST]
    )
    counts: dict[str, int] = defaultdict(int)
    for outcome in judged.values():
        counts[outcome] += 1
    return JudgedTests(
        rows=rows,
        left_out=max(0, len(order) - MOST),
        counts=tuple(sorted(counts.items(), key=lambda item: -item[1])),
    )


def _of_turn(observations: Iterable[object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for observation in observations:
        found.update(getattr(observation, "outcomes", {}))
    return found


def _wavering(outings: Sequence[Outing]) -> set[str]:
    """Tests that passed and did not pass with the same patch."""
    seen: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for outing in outings:
        for test, outcome in outing.outcomes.items():
            if outcome not in ("not_run", "skipped"):
                seen[outing.patch, test].add(outcome == "passed")
    return {test for (_, test), ways in seen.items() if len(ways) > 1}


def _flake(verdict: Verdict | None, test: str) -> str:
    flake = verdict.flaky.get(test) if verdict else None
    if flake is None:
        return ""
    low, high = flake.interval
    return f"failed {flake.failures} of {flake.runs} runs ({low:.0%} to {high:.0%})"


def _message(stored: StoredRollout, test: str) -> Excerpt | None:
    """What the verdict says of a failure, or the last turn that ran the test."""
    text = stored.reward.verdict.messages.get(test, "") if stored.reward else ""
    if not text and not stored.reward:
        found = [
            observation.messages[test]
            for turn in stored.trajectory.turns
            for observation in turn.observations
            if test in observation.messages
        ]
        text = found[-1] if found else ""
    return excerpt(text, head=3_000, tail=1_000, lines=40, last_lines=20) if text else None
