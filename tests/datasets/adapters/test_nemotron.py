"""Rows of Nemotron's sets, which wrap another set's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shop_rows import Shop, one, reason

from patchgym.datasets.adapters import detect


def wrapped(shop: Shop, **changes: Any) -> dict[str, Any]:
    """As NeMo Gym reads them."""
    inside = shop.lists()
    return {
        "id": 7,
        "responses_create_params": {
            "input": [{"role": "user", "content": "Mend it."}],
            "model": "policy",
            "metadata": {
                "instance_id": inside["instance_id"],
                "base_commit": inside["base_commit"],
                "dataset_name": "SWE-Gym/SWE-Gym",
                "split": "train",
                "problem_statement": inside["problem_statement"],
                "golden_patch": inside["patch"],
                "instance_dict": json.dumps(inside),
            },
        },
        "agent_ref": {"type": "responses_api_agents", "name": "swe_agents_train"},
        "dataset": "swe",
        "pass_rate": 0.625,
        "pass_rate_total": 8,
        "pass_rate_passed": 5,
        **changes,
    }


def test_the_row_within_is_read_as_what_it_is(shop: Shop) -> None:
    row = wrapped(shop)
    assert getattr(detect(row), "name", "") == "nemotron"
    task, inside = one(shop, "nemotron", row), one(shop, "swe-gym", shop.lists())
    assert task.content == inside.content
    assert (task.image, task.environment) == (inside.image, inside.environment)
    assert task.provenance["source"] == "swe-gym"
    assert task.provenance["wrapped_by"] == "nemotron"


@pytest.mark.parametrize(
    ("rate", "difficulty"),
    [(0.625, 0.375), (1, 0), (0.0, 1), (None, None), (7, None), (True, None)],
)
def test_the_pass_rate_gives_the_difficulty(shop: Shop, rate: Any, difficulty: Any) -> None:
    assert one(shop, "nemotron", wrapped(shop, pass_rate=rate)).difficulty == difficulty


def test_as_json_text_all_through(shop: Shop) -> None:
    row = wrapped(shop)
    row["responses_create_params"] = json.dumps(row["responses_create_params"])
    assert one(shop, "nemotron", row) == one(shop, "nemotron", wrapped(shop))


def test_rows_for_a_judge_that_runs_nothing_can_t_be_used(shop: Shop) -> None:
    row = {
        "instance_id": "ada__shop-12",
        "prompt": "Mend it.",
        "original_prompt": "Mend it.",
        "golden_patch": shop.gold,
        "relevant_file_contents": [{"file_path": "shop/price.py", "content": "x"}],
        "source": "SWE-Gym",
    }
    assert getattr(detect(row), "name", "") == "nemotron"
    assert reason(shop, "nemotron", row).startswith("no tests and no commit in it: import its")


def test_wrappings_with_nothing_in_them(shop: Shop) -> None:
    row = wrapped(shop, responses_create_params={"input": [], "metadata": {"instance_id": "a"}})
    assert reason(shop, "nemotron", row).startswith("no responses_create_params.metadata.instance")
    assert reason(shop, "nemotron", wrapped(shop, responses_create_params="{")) == (
        "no id in it: add it"
    )
