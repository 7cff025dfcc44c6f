"""Rows of SWE-bench's own shape: classic and its descendants, SWE-bench-Live, SWE-Gym."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, STATEMENT, Shop, checks, one, reason

from patchgym.datasets.adapters import detect

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
QUARTER = "tests/test_price.py::test_quarter"
NOTHING = "tests/test_price.py::test_nothing"


def test_a_classic_row(shop: Shop, tmp_path: Path) -> None:
    task = one(shop, "swe-bench", shop.classic(), (RECIPE,))
    assert (task.id, task.statement, task.base_commit) == ("ada__shop-12", STATEMENT, shop.base)
    assert (task.gold_patch, task.test_patch) == (shop.gold, shop.tests)
    assert (task.fail_to_pass, task.pass_to_pass) == ((QUARTER,), (NOTHING,))
    assert task.environment == RECIPE.environment
    assert (task.split, task.difficulty) == ("test", None)
    assert task.provenance == {"source": "swe-bench", "created_at": "2026-01-01T00:00:00Z"}
    checks(task, tmp_path / "work")


def test_verified_s_difficulty_is_a_note_and_no_share(shop: Shop) -> None:
    task = one(shop, "swe-bench", shop.classic(difficulty="15 min - 1 hour"), (RECIPE,))
    assert task.difficulty is None
    assert task.provenance["difficulty"] == "15 min - 1 hour"


def test_lists_as_numpy_and_pandas_hand_them_on(shop: Shop) -> None:
    class Array:
        """What has a `tolist`, as numpy's arrays have."""

        def __init__(self, *values: str) -> None:
            self.values = values

        def tolist(self) -> list[str]:
            return list(self.values)

    plain = one(shop, "swe-bench", shop.classic(), (RECIPE,))
    for given in ([QUARTER], Array(QUARTER), f"['{QUARTER}']"):
        row = shop.classic(FAIL_TO_PASS=given, PASS_TO_PASS=Array(NOTHING))
        assert one(shop, "swe-bench", row, (RECIPE,)) == plain


def test_a_row_of_5_brings_its_image_and_script(shop: Shop) -> None:
    script = f"#!/bin/bash\nset -uxo pipefail\n: '{START}'\npytest -rA\n: '{END}'\n"
    row = shop.lists(
        image="hub/sweb.eval.ada_1776_shop-12:latest",
        eval_script=script,
        log_parser="parse_log_pytest",
        eval_type="pass_and_fail",
        split="test",
        image_assets='{"test_patch": []}',
    )
    assert getattr(detect(row), "name", "") == "swe-bench"
    task = one(shop, "swe-bench", row)
    assert task.image == row["image"]
    assert task.environment is not None and task.environment.report == "log:parse_log_pytest"


def test_a_multilingual_row_goes_by_its_recipe(shop: Shop) -> None:
    row = shop.classic(FAIL_TO_PASS='["TestQuarter", "TestOdd/25_%"]', version=None)
    assert one(shop, "swe-bench", row, (RECIPE,)).fail_to_pass == ("TestQuarter", "TestOdd/25_%")
    assert reason(shop, "swe-bench", row).startswith("no recipe for ada/shop (no version): write")


LIVE: dict[str, Any] = {
    "pull_number": 12,
    "issue_numbers": [11],
    "all_hints_text": "",
    "commit_urls": ["https://localhost/ada/shop/commit/1"],
    "test_cmds": ["pytest -rA"],
    "log_parser": "pytest",
    "difficulty": {"files": 1, "hunks": 1, "lines": 2},
}


def test_a_row_of_live(shop: Shop, tmp_path: Path) -> None:
    row = shop.lists(**LIVE)
    assert getattr(detect(row), "name", "") == "swe-bench-live"
    task = one(shop, "swe-bench-live", row)
    assert task.image == "starryzhang/sweb.eval.x86_64.ada_1776_shop-12:latest"
    environment = task.environment
    assert environment is not None
    assert environment.test_command == "pytest -rA {test_files}"
    assert (environment.report, environment.workdir) == ("pytest", "/testbed")
    assert task.provenance["pull_number"] == "12"
    checks(task, tmp_path / "work")


def test_live_rebuilds_before_its_tests(shop: Shop) -> None:
    row = shop.lists(**LIVE | {"rebuild_cmds": ["make"], "docker_image": "hub/x:1"})
    task = one(shop, "swe-bench-live", row)
    assert task.environment is not None
    assert task.environment.test_command == "make ; pytest -rA {test_files}"
    assert task.image == "hub/x:1"


def test_live_s_other_languages_bring_code(shop: Shop) -> None:
    code = "def parser(log):\n    return {}\n"
    row = shop.lists(**LIVE | {"log_parser": code, "FAIL_TO_PASS": ["TestQuarter"]})
    assert reason(shop, "swe-bench-live", row).startswith("its log parser is code of the row's")
    assert one(shop, "swe-bench-live", row, (RECIPE,)).environment == RECIPE.environment


def test_a_command_with_no_place_for_the_probe_is_named(shop: Shop) -> None:
    row = shop.lists(**LIVE | {"test_cmds": ["make test"]})
    assert "our probe needs" in reason(shop, "swe-bench-live", row)


def test_a_row_of_swe_gym(shop: Shop, tmp_path: Path) -> None:
    row = shop.lists()
    assert getattr(detect(row), "name", "") == "swe-gym"
    task = one(shop, "swe-gym", row)
    assert task.image == "xingyaoww/sweb.eval.x86_64.ada_s_shop-12:latest"
    assert task.environment is not None
    assert (task.environment.test_command, task.environment.report) == ("", "pytest")
    assert "/envs/testbed/bin" in task.environment.variables["PATH"]
    assert task.test_files == ("tests/test_price.py",)
    checks(task, tmp_path / "work")


def test_ids_that_a_log_cut_are_read_from_a_log(shop: Shop) -> None:
    row = shop.lists(FAIL_TO_PASS=["tests/test_price.py::test_quarter[a"])
    task = one(shop, "swe-gym", row)
    assert task.environment is not None
    assert task.environment.report == "log:parse_log_pytest"
    assert task.environment.test_command == "pytest -rA {test_files}"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"FAIL_TO_PASS": []}, "no FAIL_TO_PASS: nothing would tell"),
    ({"FAIL_TO_PASS": "[x"}, "FAIL_TO_PASS is not JSON"),
    ({"FAIL_TO_PASS": [1]}, "FAIL_TO_PASS is no list of texts"),
    ({"FAIL_TO_PASS": ["TestQuarter"]}, "its test ids are not pytest's: write a recipe"),
    ({"problem_statement": ""}, "no problem_statement in it"),
    ({"problem_statement": "x \ud800"}, "half a character"),
    ({"patch": ""}, "no patch in it"),
    ({"repo": "ada/ship"}, "no mirror of ada/ship: clone it, and give --mirror ada/ship=PATH"),
    ({"base_commit": "HEAD"}, "base_commit 'HEAD' is no full commit"),
    ({"test_patch": "what?"}, "test_patch is no git diff"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_a_row_that_can_t_be_used_says_why(shop: Shop, change: dict[str, Any], text: str) -> None:
    assert reason(shop, "swe-gym", shop.lists(**change)).startswith(text)


def test_the_others_go_on(shop: Shop) -> None:
    from shop_rows import read

    found = read(shop, "swe-gym", shop.lists(instance_id="a", patch=""), shop.lists())
    assert [task.id for task in found.tasks] == ["ada__shop-12"]
    assert list(found.reasons) == ["a"]


def test_a_statement_with_the_gold_patch_is_refused(shop: Shop) -> None:
    quoted = f"{STATEMENT}\n\n```diff\n{shop.gold}```\n"
    assert reason(shop, "swe-gym", shop.lists(problem_statement=quoted)).startswith(
        "the statement holds the gold patch"
    )
    indented = "\n".join(f"    {line}" for line in shop.gold.split("\n") if line[:1] in "+-")
    assert "gold patch" in reason(
        shop, "swe-gym", shop.lists(problem_statement=f"{STATEMENT}\n{indented}\n")
    )
    said = f"{STATEMENT}\n- it returns a price\n+ it would be nice\n"
    assert one(shop, "swe-gym", shop.lists(problem_statement=said)).statement == said
