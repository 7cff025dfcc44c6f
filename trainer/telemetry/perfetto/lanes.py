"""Lays spans out in lanes: in one lane, spans follow each other or lie inside each other.

That is what a track can show. Spans that overlap otherwise, such as two rollouts, go into different
lanes; a span goes into its parent's where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from patchgym.trainer.telemetry.span_file import SpanRecord


@dataclass(slots=True)
class Lane:
    """One track's spans."""

    number: int
    spans: list[SpanRecord] = field(default_factory=list)
    """By start; those that lie in others after them."""
    open: list[SpanRecord] = field(default_factory=list)
    """Not over at the time that is laid out, the innermost last."""

    def fits(self, span: SpanRecord) -> bool:
        """Whether `span`, which starts after all that is here, follows or lies inside."""
        while self.open and self.open[-1].end <= span.start:
            self.open.pop()
        return not self.open or span.end <= self.open[-1].end

    def add(self, span: SpanRecord) -> None:
        """Put in a span that fits."""
        self.spans.append(span)
        self.open.append(span)


def lay_out(
    spans: Iterable[SpanRecord], wish: Callable[[SpanRecord], int | None] = lambda span: None
) -> list[Lane]:
    """Lanes for `spans`, by number; `wish` names the lane that a span should be in if it can."""
    lanes: dict[int, Lane] = {}
    lane_of: dict[str, Lane] = {}
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        lane = _choose(span, lanes, lane_of.get(span.parent_id), wish(span))
        lane.add(span)
        lane_of[span.span_id] = lane
    return [lanes[number] for number in sorted(lanes)]


def _choose(
    span: SpanRecord, lanes: dict[int, Lane], parents: Lane | None, wished: int | None
) -> Lane:
    if parents is not None and parents.fits(span):
        return parents
    if wished is not None:
        lane = lanes.setdefault(wished, Lane(wished))
        if lane.fits(span) and not lane.open:
            return lane
    for number in sorted(lanes):
        lane = lanes[number]
        if lane.fits(span) and not lane.open:
            return lane
    number = next(n for n in range(len(lanes) + 1) if n not in lanes)
    return lanes.setdefault(number, Lane(number))
