"""From scores to a total: a weighted sum, or a rubric that ends at the first thing not done.

Pure: a stored rollout's scores can be put together in another way whenever one likes. Penalties
are gated by the tests unless told otherwise: among patches that fix nothing, a shorter or tidier
one is not better, and a penalty there would push the policy towards answering nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import Reward, Score, Verdict
from .config import Part, RewardConfig

NOT_TAKEN = Verdict(
    status="unknown",
    evidence="not_taken",
    detail="no component that counts asked for it",
)
"""The verdict of a reward that needed none, such as where a gate before the tests was shut."""


def total_of(config: RewardConfig, scores: Sequence[Score]) -> float | None:
    """The reward's total; None when the value of a `required` component is unknown."""
    by_name = {score.name: score for score in scores}
    found = [(part, by_name.get(part.name)) for part in config.parts]
    if any(part.required and _is_unknown(score) for part, score in found):
        return None
    known = [(part, score) for part, score in found if score is not None]
    total = _rubric(known) if config.combine == "rubric" else _sum(known)
    if config.clip is not None:
        total = min(max(total, config.clip[0]), config.clip[1])
    return total


def compose(
    config: RewardConfig,
    scores: Sequence[Score],
    verdict: Verdict,
    *,
    seconds: float = 0.0,
    shared: bool = False,
) -> Reward:
    """The reward made of `scores`. An unknown verdict by itself decides nothing: the scores that
    rest on it are unknown, and `total_of` asks whether one of them is required."""
    total = total_of(config, scores)
    return Reward(
        total=total, scores=tuple(scores), verdict=verdict, seconds=seconds, shared=shared
    )


def is_open(part: Part, gate: Score | None) -> bool:
    """Whether `part` counts, given the score of the component that its gate names."""
    if not part.gate:
        return True
    return gate is not None and gate.value is not None and gate.value > part.gate_above


def _is_unknown(score: Score | None) -> bool:
    return score is None or score.status == "unknown"


def _sum(found: Sequence[tuple[Part, Score]]) -> float:
    return sum(part.signed * score.value for part, score in found if score.value is not None)


def _rubric(found: Sequence[tuple[Part, Score]]) -> float:
    """Each component's weight in turn, up to and with the share of the first that is not full."""
    total = 0.0
    for part, score in found:
        if score.status == "unknown":
            continue
        if score.value is None:
            break
        share = 1.0 - score.value if part.component.penalty else score.value
        total += part.weight * share
        if share < 1.0:
            break
    return total
