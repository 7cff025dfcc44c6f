"""Rows of R2E-Gym: a commit in JSON, and FAIL_TO_PASS out of what its tests printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, RIGHT, Shop, checks, one, reason, validated

from patchgym.datasets.adapters import detect
from patchgym.datasets.validate import validate
from patchgym.sandbox import ImageStore, Pool, SandboxSpec

CODE = """import pytest
from shop.price import discount


class Base:
    def test_inherited(self):
        assert discount(8, 0) == 8


class TestPrice(Base):
    def test_quarter(self):
        assert discount(80, 25) == 60

    @pytest.mark.parametrize("price", [1.5, 2])
    def test_nothing(self, price):
        assert discount(price, 0) == price
"""
OTHER = "def test_other():\n    assert True\n"
SUMMARY = "=========================== short test summary info ============================"
PRICE = "r2e_tests/test_1.py::TestPrice"


def line(number: int, kind: str, content: str, sign: str) -> dict[str, Any]:
    """A line of a hunk."""
    before = number if sign != "+" else None
    return {"content": content, "type": kind, "old_lineno": before, "new_lineno": number}


def file_diff(path: str, lines: list[dict[str, Any]], old: int, new: int) -> dict[str, Any]:
    """One of `file_diffs`."""
    return {
        "old_file_content": "",
        "new_file_content": "",
        "header": {"file": {"path": path}, "misc_line": None},
        "index_line": {
            "old_commit_hash": "d00491f",
            "new_commit_hash": "7edb5df",
            "mode": "100644",
        },
        "is_binary_file": False,
        "binary_line": None,
        "minus_file": {"path": f"a/{path}"},
        "plus_file": {"path": f"b/{path}"},
        "hunks": [
            {
                "descriptor": {
                    "old_range": {"start": 1, "length": old},
                    "new_range": {"start": 1, "length": new},
                    "section": "",
                },
                "line_group": {"all_lines": lines},
            }
        ],
    }


def commit(shop: Shop, old: str) -> dict[str, Any]:
    """`parsed_commit_content`."""
    fix = [
        line(1, "context", "def discount(price, percent):", " "),
        line(2, "deleted", "    return price - percent / 100", "-"),
        line(2, "added", "    return price - price * percent / 100", "+"),
    ]
    tests = [line(9, "added", "    assert discount(80, 25) == 60", "+")]
    return {
        "file_diffs": [
            file_diff("shop/price.py", fix, 2, 2),
            file_diff("tests/test_price.py", tests, 0, 1),
        ],
        "old_commit_hash": old,
        "new_commit_hash": shop.fix,
        "commit_message": "Take percent of the price",
        "commit_date": "2026-01-01T00:00:00+00:00",
        "metadata": {},
    }


OLD_LOG = f"""FFF.
PASSED nowhere::forged
{SUMMARY}
PASSED {PRICE}::test_inherited
PASSED {PRICE}::test_nothing[1.5]
PASSED {PRICE}::test_nothing[2]
PASSED r2e_tests/test_2.py::test_other
\x1b[31mFAILED\x1b[0m {PRICE}::test_quarter - assert 79.75 == 60
"""
EXPECTED = {
    "TestPrice.test_inherited": "PASSED",
    "TestPrice.test_nothing[1.5]": "PASSED",
    "TestPrice.test_nothing[2]": "PASSED",
    "\x1b[1mTestPrice.test_quarter\x1b[0m": "PASSED",
    "test_other": "PASSED",
    "test_gone": "PASSED",
    "test_never": "FAILED",
}


@pytest.fixture
def row(shop: Shop) -> dict[str, Any]:
    """As the set on the hub has them."""
    ran = {
        "repo_name": "shop",
        "new_commit_hash": shop.fix,
        "test_file_codes": [CODE, OTHER],
        "test_file_names": ["test_1.py", "test_2.py"],
        "setup_res_code": 0,
        "setup_res_stdout": "",
        "setup_res_stderr": "",
        "new_commit_res_code": 0,
        "new_commit_res_stdout": "",
        "new_commit_res_stderr": "",
        "old_commit_res_code": 1,
        "old_commit_res_stdout": OLD_LOG,
        "old_commit_res_stderr": "",
    }
    return {
        "repo_name": "shop",
        "docker_image": f"namanjain12/shop_final:{shop.fix}",
        "commit_hash": shop.fix,
        "parsed_commit_content": json.dumps(commit(shop, f"{shop.fix}^")),
        "execution_result_content": json.dumps(ran),
        "modified_files": ["shop/price.py", "tests/test_price.py"],
        "modified_entity_summaries": [],
        "relevant_files": ["shop/price.py"],
        "num_non_test_files": 1,
        "num_non_test_func_methods": 1,
        "num_non_test_lines": 2,
        "prompt": f"Write an issue for this commit:\n{shop.gold}",
        "problem_statement": "[ISSUE]\n**A quarter off is nothing off**\n\nIt is not.\n[/ISSUE]",
        "expected_output_json": json.dumps(EXPECTED),
    }


def inner(row: dict[str, Any], key: str, **changes: Any) -> dict[str, Any]:
    """The row with a change inside one of its JSON texts."""
    return row | {key: json.dumps(json.loads(row[key]) | changes)}


def test_a_row(shop: Shop, row: dict[str, Any], tmp_path: Path) -> None:
    assert getattr(detect(row), "name", "") == "r2e-gym"
    task = one(shop, "r2e-gym", row)
    assert task.id == f"shop__{shop.fix}"
    assert task.base_commit == shop.base  # FIX^, looked up in the mirror
    assert task.statement == "**A quarter off is nothing off**\n\nIt is not."
    assert task.fail_to_pass == (f"{PRICE}::test_quarter",)
    assert task.pass_to_pass == (
        f"{PRICE}::test_inherited",
        f"{PRICE}::test_nothing[1.5]",
        f"{PRICE}::test_nothing[2]",
        "r2e_tests/test_2.py::test_other",
    )
    assert task.test_files == ("r2e_tests/test_1.py", "r2e_tests/test_2.py")
    assert "tests/test_price.py" not in task.gold_patch
    assert task.provenance == {"source": "r2e-gym", "tests_left_out": "1"}
    checks(task, tmp_path / "work")
    assert (tmp_path / "work/shop/price.py").read_text() == RIGHT
    assert (tmp_path / "work/r2e_tests/test_1.py").read_text() == CODE


def test_the_image_s_tests_and_history_are_taken_away(shop: Shop, row: dict[str, Any]) -> None:
    task = one(shop, "r2e-gym", row)
    environment = task.environment
    assert environment is not None
    assert task.image is None and environment.base == row["docker_image"]
    assert "rm -rf /r2e_tests" in environment.setup[0] and "/testbed/.git" in environment.setup[0]
    assert environment.install and environment.workdir == "/testbed"
    assert environment.test_command == ".venv/bin/python -W ignore -m pytest {test_files}"


def test_files_that_come_and_go(shop: Shop, row: dict[str, Any], tmp_path: Path) -> None:
    parsed = commit(shop, shop.base)
    new = file_diff("shop/new.py", [line(1, "added", "A = 1", "+")], 0, 1)
    new["minus_file"]["path"] = "/dev/null"
    new["hunks"][0]["descriptor"]["old_range"] = {"start": 0, "length": 0}
    note = {"content": "No newline at end of file", "type": "note"}
    new["hunks"][0]["line_group"]["all_lines"].append(note)
    parsed["file_diffs"].append(new)
    task = one(shop, "r2e-gym", row | {"parsed_commit_content": json.dumps(parsed)})
    checks(task, tmp_path / "work")
    assert (tmp_path / "work/shop/new.py").read_bytes() == b"A = 1"


def test_what_can_t_be_used_is_named(shop: Shop, row: dict[str, Any]) -> None:
    def why(changed: dict[str, Any]) -> str:
        return reason(shop, "r2e-gym", changed)

    ran, parsed = "execution_result_content", "parsed_commit_content"
    assert why(inner(row, ran, old_commit_res_stdout="")).startswith("no old_commit_res_stdout")
    assert why(inner(row, ran, test_file_codes=[])).startswith("no test_file_codes")
    assert why(inner(row, parsed, old_commit_hash="0" * 40)).startswith(f"{'0' * 40} is no commit")
    assert why(inner(row, parsed, file_diffs=[])).startswith("no file_diffs but tests")
    assert why(row | {"expected_output_json": "{}"}).startswith("no test of it fails before")
    assert why(row | {parsed: "{"}).startswith(f"{parsed} is not JSON")
    assert why(row | {"repo_name": "ship"}).startswith("no mirror of ship: give one with --mirror")
    binary = file_diff("a.png", [], 0, 0) | {"is_binary_file": True}
    assert "binary file a.png" in why(inner(row, parsed, file_diffs=[binary]))
    broken = file_diff("a.py", [{"content": "x"}], 1, 1)
    assert why(inner(row, parsed, file_diffs=[broken])).startswith("a hunk of a.py")


@pytest.mark.docker
async def test_it_is_valid(shop: Shop, row: dict[str, Any], docker_image: str) -> None:
    task = replace(one(shop, "r2e-gym", row, (RECIPE,)), environment=None)
    async with Pool(SandboxSpec(image=docker_image, disk_mib=32), size=1) as pool:
        found = await validate(task, pool)
    assert (found.status, found.reason) == ("valid", "")


@pytest.mark.docker
@pytest.mark.slow
async def test_it_is_valid_in_an_image_like_its_own(
    shop: Shop, row: dict[str, Any], ready: str, store: ImageStore, docker_image: str
) -> None:
    task = one(shop, "r2e-gym", row | {"docker_image": ready})
    seen, changed = await validated(task, store, docker_image)
    assert shop.fix not in seen and shop.base in seen
    assert "r2e_tests" not in seen and ".venv" in seen
    assert changed == ""
