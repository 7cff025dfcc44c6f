"""Comparisons against numbers worked out by hand, and reports of both kinds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.rewards.evaluation import EvaluationError, Scores, compare, read_scores, scores_of
from patchgym.rewards.evaluation.compare import bootstrap, sign_test


def scores(name: str, bits: str) -> Scores:
    return Scores(name=name, by_task={f"t{i:02}": float(bit) for i, bit in enumerate(bits)})


def test_by_hand() -> None:
    found = compare(scores("a", "1100000000"), scores("b", "1011100000"))
    assert (found.base_rate, found.other_rate, found.tasks) == (0.2, 0.4, 10)
    assert found.difference == pytest.approx(0.2)
    assert found.gained == ("t02", "t03", "t04")
    assert found.lost == ("t01",)
    # 3 against 1: 2 x (1 + 4) / 16
    assert found.p_value == pytest.approx(0.625)
    low, high = found.interval
    assert low < 0 < found.difference < high


@pytest.mark.parametrize(
    ("gained", "lost", "expected"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (0, 6, 0.03125), (10, 2, 0.03857421875), (4, 4, 1)],
)
def test_the_sign_test(gained: int, lost: int, expected: float) -> None:
    assert sign_test(gained, lost) == pytest.approx(expected)
    assert sign_test(lost, gained) == pytest.approx(expected)


def test_many_changes_are_no_overflow() -> None:
    assert 0 < sign_test(1200, 1000) < 1e-4


def test_the_bootstrap_agrees_with_the_normal_interval() -> None:
    values = [1.0] * 40 + [0.0] * 130 + [-1.0] * 30
    mean = 10 / 200
    deviation = math.sqrt(sum((each - mean) ** 2 for each in values) / 200)
    half = 1.96 * deviation / math.sqrt(200)
    low, high = bootstrap(values, resamples=10_000, seed=0)
    assert low == pytest.approx(mean - half, abs=0.006)
    assert high == pytest.approx(mean + half, abs=0.006)
    assert (low, high) == bootstrap(values, resamples=10_000, seed=0)


def test_no_difference_has_no_width() -> None:
    found = compare(scores("a", "110"), scores("b", "110"))
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)


@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_the_other_way_round_is_the_mirror_image(pairs: list[tuple[bool, bool]]) -> None:
    one = scores("a", "".join("01"[a] for a, _ in pairs))
    two = scores("b", "".join("01"[b] for _, b in pairs))
    there = compare(one, two, resamples=200)
    back = compare(two, one, resamples=200)
    assert there.difference == pytest.approx(-back.difference)
    assert there.interval[0] <= there.interval[1]
    assert (there.p_value, there.gained) == (back.p_value, back.lost)


def test_tasks_of_one_side_are_named() -> None:
    one = Scores(name="a", by_task={"x": 1.0, "y": 0.0})
    two = Scores(name="b", by_task={"y": 1.0, "z": 0.0})
    found = compare(one, two, resamples=10)
    assert (found.tasks, found.only_base, found.only_other) == (1, ("x",), ("z",))
    with pytest.raises(EvaluationError, match="no task in common"):
        compare(one, Scores(name="c", by_task={"q": 1.0}))


SWEBENCH = {
    "total_instances": 6, "submitted_instances": 5, "completed_instances": 3,
    "resolved_instances": 2, "unresolved_instances": 1, "empty_patch_instances": 1,
    "error_instances": 1, "completed_ids": ["a", "b", "c"], "incomplete_ids": ["f"],
    "empty_patch_ids": ["d"], "submitted_ids": ["a", "b", "c", "d", "e"],
    "resolved_ids": ["a", "b"], "unresolved_ids": ["c"], "error_ids": ["e"], "schema_version": 2,
}  # fmt: skip


def test_a_report_of_swe_bench(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(SWEBENCH))
    found = read_scores(path)
    assert found.by_task == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0, "f": 0.0}
    assert found.unknown == ("e",)


def test_repeats_count_in_shares() -> None:
    repeats = [{"status": each} for each in ("resolved", "unknown", "unresolved", "resolved")]
    verdicts = {"e": {"repeats": repeats}, "a": {"repeats": [{"status": "unknown"}]}}
    found = scores_of({**SWEBENCH, "verdicts": verdicts}, "r")
    assert found.by_task["e"] == pytest.approx(2 / 3)
    assert found.by_task["a"] == 1.0
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "no resolved_ids"),
        ('{"resolved_ids": 3}', "no resolved_ids"),
        ('{"resolved_ids": [], "unresolved_ids": [3]}', "unresolved_ids is no list of ids"),
        ('{"resolved_ids": [], "verdicts": []}', "damaged"),
        ('{"resolved_ids": [], "verdicts": {"a": {"repeats": [{}]}}}', "damaged"),
    ],
)
def test_no_report(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(EvaluationError, match=why):
        read_scores(path)
    with pytest.raises(EvaluationError, match="No such file"):
        read_scores(tmp_path / "nowhere.json")
