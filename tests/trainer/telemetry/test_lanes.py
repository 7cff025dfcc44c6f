"""Lanes: each span is in one, and those in one follow each other or lie inside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchgym.trainer.telemetry import SpanRecord
from patchgym.trainer.telemetry.perfetto.counters import collected, under_way
from patchgym.trainer.telemetry.perfetto.groups import group_of, grouped
from patchgym.trainer.telemetry.perfetto.lanes import lay_out


def span(
    number: int, start: float, end: float, parent: int | None = None, name: str = "", **more: str
) -> SpanRecord:
    return SpanRecord(
        name=name or f"span {number}",
        start=start,
        end=end,
        trace_id="0" * 32,
        span_id=str(number),
        parent_id="" if parent is None else str(parent),
        scope=more.get("scope", "patchgym.agent"),
    )


times = st.integers(0, 30)
intervals = st.lists(st.tuples(times, times).map(sorted), max_size=30)


@given(intervals)
def test_a_lane_never_holds_spans_that_overlap_in_part(found: list[list[int]]) -> None:
    spans = [span(number, start, end) for number, (start, end) in enumerate(found)]
    lanes = lay_out(spans)
    assert sorted(s.span_id for lane in lanes for s in lane.spans) == sorted(
        s.span_id for s in spans
    )
    for lane in lanes:
        for at, one in enumerate(lane.spans):
            for other in lane.spans[at + 1 :]:
                assert one.end <= other.start or other.end <= one.end


def test_parts_lie_in_the_lane_of_their_whole() -> None:
    spans = [
        span(1, 0, 10),
        span(2, 1, 9),
        span(3, 1, 4, parent=1),
        span(4, 2, 3, parent=2),
        span(5, 5, 6, parent=1),
    ]
    ids = [[each.span_id for each in lane.spans] for lane in lay_out(spans)]
    assert ids == [["1", "3", "5"], ["2", "4"]]


def test_rollouts_are_in_the_lane_of_their_slot() -> None:
    spans = [span(1, 0, 10), span(2, 1, 9), span(3, 12, 13)]
    wishes = {"1": 3, "2": 0, "3": 3}
    lanes = lay_out(spans, lambda each: wishes[each.span_id])
    assert {lane.number: [s.span_id for s in lane.spans] for lane in lanes} == {
        0: ["2"],
        3: ["1", "3"],
    }


def test_two_that_wish_for_one_lane_at_a_time_are_told_apart() -> None:
    lanes = lay_out([span(1, 0, 10), span(2, 1, 2)], lambda each: 0)
    assert [[s.span_id for s in lane.spans] for lane in lanes] == [["1"], ["2"]]


def test_what_a_verdict_does_in_a_sandbox_is_shown_with_the_scoring() -> None:
    spans = [
        span(1, 0, 1, name="rollout"),
        span(2, 2, 9, 1, "scoring", scope="patchgym.rewards"),
        span(3, 3, 4, 2, "command", scope="patchgym.sandbox"),
        span(4, 0, 1, 1, "command", scope="patchgym.sandbox"),
        span(5, 3, 8, 2, "lease", scope="patchgym.sandbox"),
        span(6, 3, 8, 77, "run tests", scope="patchgym.sandbox"),
    ]
    by_id = {each.span_id: each for each in spans}
    assert [group_of(each, by_id) for each in spans] == [
        "Rollouts", "Scoring", "Scoring", "Rollouts", "Sandbox leases", "Other",
    ]  # fmt: skip
    assert sum(len(each) for each in grouped(spans).values()) == len(spans)


def test_a_curve_counts_what_is_under_way() -> None:
    spans = [span(1, 0, 4, name="rollout"), span(2, 2, 6, name="rollout"), span(3, 4, 5, name="x")]
    assert under_way(spans) == {"rollouts under way": [(0, 1), (2, 2), (4, 1), (6, 0)]}


def test_idle_is_the_share_since_the_last_collection() -> None:
    def at(time: float, training: float, waiting: float) -> dict[str, object]:
        points = [
            {"attributes": {"patchgym.learner.state": "training"}, "value": training},
            {"attributes": {"patchgym.learner.state": "waiting"}, "value": waiting},
        ]
        return {"time": time, "metrics": [{"name": "patchgym.learner.time", "points": points}]}

    lines = [at(10, 5, 5), at(20, 7, 13), at(30, 0, 1), at(40, 5, 6)]
    assert collected(lines, 15) == {"learner idle, %": [(20, 80.0), (40, 50.0)]}
