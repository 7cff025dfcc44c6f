"""Rows of Multi-SWE-bench: tests by what became of them in three runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, Shop, checks, one, reason

from patchgym.datasets.adapters import detect


def states(run: str, test: str, fix: str) -> dict[str, str]:
    """What became of a test: before, with the tests alone, with the fix."""
    return {"run": run, "test": test, "fix": fix}


FIXED = {
    "TestQuarter": states("NONE", "FAIL", "PASS"),
    "TestQuarter/of_80": states("NONE", "NONE", "PASS"),
    "TestBroken": states("NONE", "FAIL", "FAIL"),
}
KEPT = {"TestNothing": states("PASS", "PASS", "PASS"), "TestSkip": states("PASS", "PASS", "SKIP")}


def result(*passed: str) -> dict[str, Any]:
    """Of one run."""
    return {
        "passed_count": len(passed),
        "failed_count": 0,
        "skipped_count": 0,
        "passed_tests": list(passed),
        "failed_tests": [],
        "skipped_tests": [],
    }


@pytest.fixture
def row(shop: Shop) -> dict[str, Any]:
    """As its JSON Lines have them."""
    return {
        "org": "ada",
        "repo": "shop",
        "number": 12,
        "state": "closed",
        "title": "Take percent of the price",
        "body": "It was taken of 100: `price * percent / 100`.\n\nCloses #11",
        "base": {"label": "ada:main", "ref": "main", "sha": shop.base},
        "resolved_issues": [
            {"number": 11, "title": "A quarter off is nothing off", "body": "It must be 60.\r\n"},
            {"number": 10, "title": "Prices are odd", "body": None},
        ],
        "fix_patch": shop.gold,
        "test_patch": shop.tests,
        "fixed_tests": FIXED,
        "p2p_tests": KEPT,
        "f2p_tests": {"TestQuarter": FIXED["TestQuarter"]},
        "s2p_tests": {},
        "n2p_tests": {"TestQuarter/of_80": FIXED["TestQuarter/of_80"]},
        "run_result": result("TestNothing"),
        "test_patch_result": result("TestNothing"),
        "fix_patch_result": result("TestNothing", "TestQuarter", "TestQuarter/of_80"),
        "lang": "go",
    }


def test_a_row(shop: Shop, row: dict[str, Any], tmp_path: Path) -> None:
    assert getattr(detect(row), "name", "") == "multi-swe-bench"
    task = one(shop, "multi-swe-bench", row, (RECIPE,))
    assert (task.id, task.repo, task.base_commit) == ("ada__shop-12", "ada/shop", shop.base)
    assert task.fail_to_pass == ("TestQuarter", "TestQuarter/of_80")
    assert task.pass_to_pass == ("TestNothing",)
    assert task.statement == "A quarter off is nothing off\n\nIt must be 60.\n\nPrices are odd"
    assert task.provenance == {
        "source": "multi-swe-bench", "pull_request": "12", "language": "go",
    }  # fmt: skip
    checks(task, tmp_path / "work")


def test_maps_as_text_lists_and_structs(shop: Shop, row: dict[str, Any]) -> None:
    plain = one(shop, "multi-swe-bench", row, (RECIPE,))
    pairs = [{"name": name, **each} for name, each in FIXED.items()]
    # parquet makes one struct of a column: every row has the names of all the others
    for given in (json.dumps(FIXED), list(FIXED.items()), pairs, FIXED | {"TestElsewhere": None}):
        changed = row | {"fixed_tests": given, "base": json.dumps(row["base"])}
        assert one(shop, "multi-swe-bench", changed, (RECIPE,)) == plain


def test_fixed_tests_are_those_of_three_maps(shop: Shop, row: dict[str, Any]) -> None:
    without = {key: value for key, value in row.items() if key != "fixed_tests"}
    task = one(shop, "multi-swe-bench", without, (RECIPE,))
    assert task.fail_to_pass == ("TestQuarter", "TestQuarter/of_80")


def test_its_own_id_counts(shop: Shop, row: dict[str, Any]) -> None:
    task = one(shop, "multi-swe-bench", row | {"instance_id": "ada__shop-pr-12"}, (RECIPE,))
    assert task.id == "ada__shop-pr-12"


def test_what_can_t_be_used_is_named(shop: Shop, row: dict[str, Any]) -> None:
    def why(**changes: Any) -> str:
        return reason(shop, "multi-swe-bench", row | changes, (RECIPE,))

    assert reason(shop, "multi-swe-bench", row).startswith("no recipe for ada/shop (no version)")
    assert why(resolved_issues=[]).startswith("no resolved_issues: the pull request's own text")
    assert why(fixed_tests={}, f2p_tests={}, n2p_tests={}).startswith("no fixed_tests")
    assert why(base={}).startswith("no sha in it")
    assert why(fix_patch=" ").startswith("no fix_patch in it")
    assert why(org="eve").startswith("no recipe for eve/shop")
