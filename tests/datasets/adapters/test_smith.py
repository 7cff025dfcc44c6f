"""Rows of SWE-smith: the patch is the bug."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, RIGHT, WRONG, Shop, checks, git, one, reason

from patchgym.datasets.adapters import Sources, detect, find_format
from patchgym.datasets.rows import Row
from patchgym.datasets.validate import validate
from patchgym.sandbox import Pool, SandboxSpec


@pytest.fixture
def row(shop: Shop) -> dict[str, Any]:
    """As the set on the hub has them: no base_commit, no test_patch."""
    return {
        "instance_id": f"ada__shop.{shop.fix[:8]}.func_pm_op_swap__0a1b2c3d",
        "patch": git(shop.path, "diff", shop.fix, shop.base, "--", "shop"),
        "FAIL_TO_PASS": ["tests/test_price.py::test_quarter"],
        "PASS_TO_PASS": ["tests/test_price.py::test_nothing"],
        "image_name": f"jyangballin/swesmith.x86_64.ada_1776_shop.{shop.fix[:8]}",
        "repo": f"swesmith/ada__shop.{shop.fix[:8]}",
        "problem_statement": "#### A quarter off is nothing off\n",
    }


def test_the_bug_is_in_the_commit_and_the_fix_takes_it_out(
    shop: Shop, row: dict[str, Any], tmp_path: Path
) -> None:
    assert getattr(detect(row), "name", "") == "swe-smith"
    task = one(shop, "swe-smith", row)
    assert task.repository is not None
    made = Path(task.repository)
    assert git(made, "show", f"{task.base_commit}:shop/price.py") == WRONG
    # no history: the fix is nowhere in it
    assert git(made, "log", "--format=%P", task.base_commit).strip() == ""
    assert task.gold_patch.count("\n+") == 2  # the header's, and one line
    # the tests that would tell are taken away, and hidden
    assert "tests/test_price.py" not in git(made, "ls-tree", "-r", "--name-only", task.base_commit)
    checks(task, tmp_path / "work")
    assert (tmp_path / "work/shop/price.py").read_text() == RIGHT
    assert task.image == row["image_name"]
    assert task.repo == "ada/shop"


def test_the_same_row_makes_the_same_commit(
    shop: Shop, row: dict[str, Any], tmp_path: Path
) -> None:
    first, again = one(shop, "swe-smith", row), one(shop, "swe-smith", row)
    assert first == again
    sources = Sources(
        recipes=(), mirrors={"ada/shop": shop.path}, repositories=tmp_path / "elsewhere"
    )
    other = find_format("swe-smith").task_of(Row(where="x:1", values=row), sources)
    assert (other.base_commit, other.content) == (first.base_commit, first.content)


def test_swe_smith_s_own_copy_has_but_one_commit(shop: Shop, row: dict[str, Any]) -> None:
    sources = Sources(
        recipes=(), mirrors={row["repo"]: shop.path}, repositories=shop.path.parent / "made"
    )
    task = find_format("swe-smith").task_of(Row(where="x:1", values=row), sources)
    assert task.base_commit == one(shop, "swe-smith", row).base_commit


def test_what_can_t_be_used_is_named(shop: Shop, row: dict[str, Any]) -> None:
    def why(**changes: Any) -> str:
        return reason(shop, "swe-smith", row | changes)

    assert why(problem_statement="").startswith("no problem_statement")
    assert why(repo="ada/shop").startswith("repo 'ada/shop' is no OWNER__NAME.COMMIT")
    assert why(repo="swesmith/ada__ship.01234567").startswith("no mirror of ada/ship: clone it")
    assert "is no commit of" in why(repo="swesmith/ada__shop.01234567")
    assert why(patch=shop.gold).startswith(f"its patch does not apply to {shop.fix}")
    text = why(FAIL_TO_PASS=["TestQuarter"], PASS_TO_PASS=[])
    assert text.startswith("its test ids are not pytest's")


@pytest.mark.docker
async def test_it_is_valid(shop: Shop, row: dict[str, Any], docker_image: str) -> None:
    task = replace(one(shop, "swe-smith", row, (RECIPE,)), environment=None)
    async with Pool(SandboxSpec(image=docker_image, disk_mib=32), size=1) as pool:
        found = await validate(task, pool)
    assert (found.status, found.reason) == ("valid", "")
