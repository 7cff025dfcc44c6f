"""The report: SWE-bench's keys by the letter, every task in one list, rates worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchgym.rewards import Verdict
from patchgym.rewards.base import VerdictEvidence, VerdictStatus
from patchgym.rewards.evaluation import (
    Evaluation,
    EvaluationError,
    Judged,
    document,
    scores_of,
    write_report,
)
from patchgym.rewards.evaluation.record import verdict_from
from patchgym.rewards.plain import plain
from patchgym.rewards.tampering import TamperFinding
from patchgym.sandbox import Flake, Outcome

# What swebench 4 and 5 write, without the keys about leftovers on the machine.
SWEBENCH = [
    "total_instances", "submitted_instances", "completed_instances", "resolved_instances",
    "unresolved_instances", "empty_patch_instances", "error_instances", "submitted_ids",
    "completed_ids", "incomplete_ids", "resolved_ids", "unresolved_ids", "empty_patch_ids",
    "error_ids", "schema_version",
]  # fmt: skip
VERDICT_KEYS = {"resolved", "outcomes", "evidence", "tampering", "flaky", "seconds"}
CHEAT = TamperFinding(
    rule="process-exit", path="a.py", line=3, message="os._exit", disqualifies=True
)


def verdict(
    status: VerdictStatus, evidence: VerdictEvidence = "report", seconds: float = 1.0
) -> Verdict:
    outcome: Outcome = "passed" if status == "resolved" else "failed"
    return Verdict(
        status=status, evidence=evidence, outcomes={"t.py::t": outcome}, seconds=seconds, log="out"
    )


def judged(*verdicts: Verdict) -> Judged:
    return Judged(verdicts=verdicts, logs=tuple(f"logs/{n}" for n in range(len(verdicts))))


GOOD, BAD = verdict("resolved"), verdict("unresolved")
EMPTY = Verdict(status="unresolved", evidence="empty_patch")
LOST = Verdict(status="unknown", evidence="infra", detail="SandboxLost: gone")
FLAKY = Verdict(
    status="unknown", evidence="flaky", flaky={"t.py::t": Flake(runs=4, failures=1)}, seconds=2.0
)
CHEATED = Verdict(status="unresolved", evidence="tampering", tampering=(CHEAT,), seconds=3.0)
REFUSED = Verdict(status="unresolved", evidence="patch_refused", detail="no diff", seconds=0.5)
EVALUATION = Evaluation(
    task_ids=(
        "good",
        "bad",
        "empty",
        "lost",
        "flaky",
        "cheated",
        "refused",
        "row",
        "typo",
        "silent",
    ),
    submitted_ids=(
        "good",
        "bad",
        "empty",
        "lost",
        "flaky",
        "cheated",
        "refused",
        "row",
        "typo",
        "other",
    ),
    judged={
        "good": judged(GOOD),
        "bad": judged(BAD),
        "empty": judged(EMPTY),
        "lost": judged(LOST),
        "flaky": judged(FLAKY),
        "cheated": judged(CHEATED),
        "refused": judged(REFUSED),
    },
    broken={"row": "no FAIL_TO_PASS"},
    unusable={"typo": "no key model_patch", "row": "not counted twice"},
    notes=("p.jsonl:4: no key instance_id; ignored",),
)


def test_swe_benchs_keys() -> None:
    record = document(EVALUATION)
    found = {key: record[key] for key in SWEBENCH}
    assert found == {
        "total_instances": 10, "submitted_instances": 10, "completed_instances": 4,
        "resolved_instances": 1, "unresolved_instances": 3, "empty_patch_instances": 1,
        "error_instances": 4, "submitted_ids": sorted(EVALUATION.submitted_ids),
        "completed_ids": ["bad", "cheated", "good", "refused"], "incomplete_ids": ["silent"],
        "resolved_ids": ["good"], "unresolved_ids": ["bad", "cheated", "refused"],
        "empty_patch_ids": ["empty"], "error_ids": ["flaky", "lost", "row", "typo"],
        "schema_version": 2,
    }  # fmt: skip


def test_every_task_is_in_one_list() -> None:
    record = document(EVALUATION)
    lists = ("resolved", "unresolved", "empty_patch", "incomplete", "error")
    listed = [each for name in lists for each in record[f"{name}_ids"]]
    assert sorted(listed) == sorted(EVALUATION.task_ids)


def test_what_is_named_beside() -> None:
    record = document(EVALUATION)
    assert record["unknown_ids"] == ["other"]
    assert record["flaky_ids"] == ["flaky"]
    assert record["tampered_ids"] == ["cheated"]
    assert record["errors"] == {
        "flaky": "only flaky tests stand in the way: t.py::t",
        "lost": "SandboxLost: gone",
        "row": "no FAIL_TO_PASS",
        "typo": "no key model_patch",
    }
    assert record["unusable_ids"] == ["typo"]
    assert record["notes"] == list(EVALUATION.notes)


def test_the_rate_leaves_out_what_is_not_known() -> None:
    rate = EVALUATION.rate()
    assert (rate.resolved, rate.judged) == (1, 7)
    low, high = rate.interval
    assert 0 < low < 1 / 7 < high < 1
    nothing = Evaluation(task_ids=("row",), submitted_ids=(), judged={}, broken={"row": "x"})
    assert (nothing.rate().rate, nothing.rate().interval) == (0.0, (0.0, 1.0))


def test_a_verdicts_record() -> None:
    record = document(EVALUATION)["verdicts"]
    assert all(record[each].keys() >= VERDICT_KEYS for each in EVALUATION.judged)
    assert record["good"]["resolved"] is True
    assert record["bad"]["resolved"] is False
    assert record["bad"]["outcomes"] == {"t.py::t": "failed"}
    assert record["cheated"]["tampering"] == [plain(CHEAT)]
    flake = record["flaky"]["flaky"]["t.py::t"]
    assert (flake["runs"], flake["failures"], flake["rate"]) == (4, 1, 0.25)
    assert flake["interval"][0] < 0.25 < flake["interval"][1]
    assert record["good"]["log"] == "logs/0"  # a path; what was printed is in that file


def test_seconds_are_of_verdicts_that_ran() -> None:
    seconds = document(EVALUATION)["seconds"]
    # 1, 1, 2, 3, 0.5
    assert (seconds["p50"], seconds["p95"], seconds["max"]) == (1.0, 3.0, 3.0)
    assert list(seconds["slowest"].items())[0] == ("cheated", 3.0)
    nothing = Evaluation(task_ids=("a",), submitted_ids=(), judged={})
    assert document(nothing)["seconds"]["p50"] is None


REPEATED = Evaluation(
    task_ids=("a", "b", "c", "d"),
    submitted_ids=("a", "b", "c", "d"),
    judged={
        "a": judged(GOOD, GOOD, GOOD),
        "b": judged(GOOD, BAD, GOOD),
        "c": judged(BAD, LOST, BAD),
        "d": judged(BAD, BAD, FLAKY),
    },
    repeats=3,
)


def test_repeats() -> None:
    record = document(REPEATED)
    assert record["resolved_ids"] == ["a", "b"]  # the first repeat's
    repeats = record["repeats"]
    assert [each["rate"] for each in repeats["rates"]] == pytest.approx([2 / 4, 1 / 3, 2 / 3])
    assert [each["judged"] for each in repeats["rates"]] == [4, 3, 3]
    assert repeats["mean"] == pytest.approx(0.5)
    assert (repeats["minimum"], repeats["maximum"]) == pytest.approx((1 / 3, 2 / 3))
    assert repeats["standard_deviation"] == pytest.approx(1 / 6)
    assert repeats["changed"] == {
        "b": ["resolved", "unresolved", "resolved"],
        "d": ["unresolved", "unresolved", "unknown"],
    }
    assert [each["status"] for each in record["verdicts"]["b"]["repeats"]] == repeats["changed"][
        "b"
    ]
    assert scores_of(record, "r").by_task == {"a": 1.0, "b": pytest.approx(2 / 3), "c": 0, "d": 0}


@pytest.mark.parametrize("each", [GOOD, LOST, FLAKY, CHEATED, REFUSED, EMPTY])
def test_a_verdict_comes_back_from_json(each: Verdict) -> None:
    assert verdict_from(json.loads(json.dumps(plain(each)))) == each


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "report.json"
    write_report(document(EVALUATION), path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(document(EVALUATION)))
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_report({"a": object()}, path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="can't be written"):
        write_report({}, tmp_path / "file" / "report.json")
