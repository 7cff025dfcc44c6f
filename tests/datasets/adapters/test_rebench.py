"""Rows of SWE-rebench, V1 and V2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, Shop, checks, one, reason, validated

from patchgym.datasets.adapters import detect
from patchgym.sandbox import ImageStore

CONFIG = {
    "env_vars": None,
    "env_yml_path": None,
    "install": "pip install -e .[dev]",
    "log_parser": "parse_log_pytest",
    "no_use_env": None,
    "packages": "requirements.txt",
    "pip_packages": ["pytest"],
    "pre_install": None,
    "python": "3.9",
    "reqs_path": ["requirements.txt"],
    "test_cmd": "pytest --no-header -rA --tb=line --color=no -p no:cacheprovider "
    "-W ignore::DeprecationWarning",
}
META = {
    "commit_name": "head_commit",
    "has_test_patch": True,
    "is_lite": True,
    "llm_score": {"difficulty_score": 1, "issue_text_score": 0, "test_score": 0},
    "num_modified_files": 1,
}


def first(shop: Shop, **changes: Any) -> dict[str, Any]:
    """A row of V1."""
    row = {
        "install_config": CONFIG,
        "requirements": "pytest==8.0.0\n",
        "environment": "name: shop\n",
        "meta": META,
        "license_name": "MIT License",
        "docker_image": "swerebench/sweb.eval.x86_64.ada_1776_shop-12",
        "FAIL_TO_FAIL": [],
        "PASS_TO_FAIL": [],
        "environment_setup_commit": shop.base,
    }
    return shop.lists() | row | changes


def second(shop: Shop, **changes: Any) -> dict[str, Any]:
    """A row of V2."""
    row = {
        "image_name": "docker.io/swerebenchv2/ada-shop:12-0123abc",
        "language": "go",
        "license": "MIT",
        "interface": "",
        "pr_description": "the fix, told",
        "install_config": {
            "base_image_name": "go_1.23",
            "docker_specs": None,
            "install": ["go mod download"],
            "log_parser": "parse_log_gotest",
            "test_cmd": "go test -v ./...",
        },
        "meta": {"llm_metadata": {"code": "A", "difficulty": "easy"}, "num_modified_files": 1},
        "FAIL_TO_PASS": ["TestQuarter"],
        "PASS_TO_PASS": [],
    }
    return shop.lists() | row | changes


def test_a_row_of_the_first(shop: Shop, tmp_path: Path) -> None:
    row = first(shop)
    assert getattr(detect(row), "name", "") == "swe-rebench"
    task = one(shop, "swe-rebench", row)
    assert task.image == row["docker_image"]
    assert task.environment is not None
    assert task.environment.test_command == f"{CONFIG['test_cmd']} {{test_files}}"
    assert (task.environment.report, task.environment.workdir) == ("pytest", "/testbed")
    assert task.difficulty is None
    assert task.provenance["difficulty_score"] == "1"
    checks(task, tmp_path / "work")


def test_nested_columns_as_json_text(shop: Shop) -> None:
    row = first(shop, install_config=json.dumps(CONFIG), meta=json.dumps(META))
    assert one(shop, "swe-rebench", row) == one(shop, "swe-rebench", first(shop))


def test_a_row_of_the_second_in_another_language(shop: Shop) -> None:
    task = one(shop, "swe-rebench", second(shop))
    assert task.environment is not None
    assert task.environment.test_command == "go test -v ./..."
    assert task.environment.report == "log:parse_log_gotest"
    assert task.environment.workdir == "/shop"
    assert task.provenance["difficulty"] == "easy"
    assert "told" not in task.statement


def test_parsers_that_swebench_has_not_are_named(shop: Shop) -> None:
    row = second(shop, install_config={"test_cmd": "x", "log_parser": "parse_log_js_4"})
    text = reason(shop, "swe-rebench", row)
    assert text.startswith("no log parser 'parse_log_js_4' in swebench")
    assert text.endswith("(no recipe for ada/shop 1.7)")
    assert one(shop, "swe-rebench", row, (RECIPE,)).environment == RECIPE.environment


def test_what_is_missing_is_named(shop: Shop) -> None:
    assert reason(shop, "swe-rebench", first(shop, docker_image=None)).startswith("no docker_image")
    assert reason(shop, "swe-rebench", first(shop, install_config={})).startswith("no test_cmd")
    assert reason(shop, "swe-rebench", first(shop, install_config="{")).startswith(
        "install_config is not JSON"
    )
    assert reason(shop, "swe-rebench", first(shop, install_config=[])).startswith(
        "install_config is no object"
    )


@pytest.mark.docker
@pytest.mark.slow
async def test_it_is_valid_in_an_image_like_its_own(
    shop: Shop, ready: str, store: ImageStore, docker_image: str
) -> None:
    task = one(shop, "swe-rebench", first(shop, docker_image=ready))
    seen, changed = await validated(task, store, docker_image)
    assert shop.fix not in seen and shop.base in seen
    assert changed == ""
