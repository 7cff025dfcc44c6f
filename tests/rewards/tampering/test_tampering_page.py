"""The table of docs/tampering.md is that of the code."""

from __future__ import annotations

from pathlib import Path

from cheats import CHEATS
from honest_patches import HONEST

from patchgym.rewards.tampering import RULES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tampering.md"


def test_the_table_says_what_the_code_says() -> None:
    expected = [
        f"| `{name}` | {rule.place} | {'yes' if rule.disqualifies else 'named'} | {rule.about} |"
        for name, rule in RULES.items()
    ]
    lines = PAGE.read_text().splitlines()
    assert [line for line in lines if line.startswith("| `")] == expected


def test_its_counts_are_true() -> None:
    page = PAGE.read_text()
    assert f"{len(CHEATS)} cheating patches" in page
    assert f"{len(HONEST)} honest ones" in page
