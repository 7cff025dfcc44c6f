"""Which group of tracks a span is shown in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from patchgym.trainer.telemetry.span_file import SpanRecord

ROLLOUTS, SCORING, LEARNER, SAMPLER, LEASES, PREPARING, OTHER = (
    "Rollouts",
    "Scoring",
    "Learner",
    "Sampler",
    "Sandbox leases",
    "Sandboxes being made",
    "Other",
)
GROUPS = (LEARNER, SAMPLER, ROLLOUTS, SCORING, LEASES, PREPARING, OTHER)
"""In the order in which they are shown."""
LANE_NAMES = {
    LEARNER: "learner",
    SAMPLER: "turn",
    ROLLOUTS: "slot",
    SCORING: "worker",
    LEASES: "lease",
    PREPARING: "sandbox",
    OTHER: "lane",
}
"""What a group's tracks are called, a number after it."""
_BY_NAME = {"lease": LEASES, "prepare sandbox": PREPARING}
_TOPS = {"rollout": ROLLOUTS, "scoring": SCORING}


def grouped(spans: Sequence[SpanRecord]) -> dict[str, list[SpanRecord]]:
    """Spans by group. A turn that is sampled is shown twice: in its rollout, and by itself."""
    by_id = {span.span_id: span for span in spans}
    found: dict[str, list[SpanRecord]] = defaultdict(list)
    for span in spans:
        found[group_of(span, by_id)].append(span)
        if is_sampling(span):
            found[SAMPLER].append(span)
    return found


def is_sampling(span: SpanRecord) -> bool:
    """Whether a policy was asked for a turn."""
    return span.attributes.get("gen_ai.operation.name") == "text_completion"


def group_of(span: SpanRecord, by_id: Mapping[str, SpanRecord]) -> str:
    """The group of a span; of parts of a rollout or of a scoring, that one's."""
    if span.name in _BY_NAME:
        return _BY_NAME[span.name]
    if span.scope == "patchgym.trainer":
        return LEARNER
    above: SpanRecord | None = span
    while above is not None:
        if above.name in _TOPS:
            return _TOPS[above.name]
        above = by_id.get(above.parent_id)
    return {"patchgym.agent": ROLLOUTS, "patchgym.rewards": SCORING}.get(span.scope, OTHER)
