"""The tables of docs/telemetry.md are what the code makes: every metric, every span."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from instruments import instruments, prometheus_names

RULE_21 = {
    "accelerator idle share": "patchgym.learner.time",
    "and its reason": "patchgym.learner.idle.time",
    "queue depth": "patchgym.queue.depth",
    "trajectory latency": "patchgym.rollout.duration",
    "tool latency by tool": "patchgym.tool.duration",
    "reward time by component": "patchgym.reward.component.duration",
    "trainer wait and weight publish time": "patchgym.learner.stage.duration",
    "tokens per accelerator-second": "patchgym.tokens_per_accelerator",
    "lease wait": "patchgym.sandbox.lease.wait",
    "staleness histogram": "patchgym.staleness",
    "outcomes by kind": "patchgym.rollout.outcomes",
    "flake rate": "patchgym.test.outcomes",
}
"""What must always be measured, and by which metric it is."""


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "telemetry.md").read_text()


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the table below a heading."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_lists_every_metric_as_the_code_makes_it(page: str) -> None:
    listed = [(name.strip("`"), kind, unit.strip("`"), words) for name, kind, unit, words in
              rows(page, "Metrics")]  # fmt: skip
    made = [(m.name, m.kind.replace("_", "-"), m.unit, m.description) for m in instruments()]
    assert sorted(listed) == sorted(made)


def test_every_metric_has_a_unit_and_a_description_and_one_maker() -> None:
    made = instruments()
    assert all(each.unit and each.description for each in made)
    assert len({each.name for each in made}) == len(made)
    assert len({each.description for each in made}) == len(made)


def test_all_that_must_always_be_measured_is() -> None:
    assert set(RULE_21.values()) <= {each.name for each in instruments()}


def test_the_names_that_the_page_gives_for_prometheus_are_its(page: str) -> None:
    named = set(re.findall(r"`((?:patchgym|gen_ai)_[a-z_]+)`", page))
    assert named
    assert named <= prometheus_names()


def test_the_page_lists_every_span_that_the_layers_begin(page: str, root: Path) -> None:
    listed = {row[0].strip("`").split(" ")[0] for row in rows(page, "Spans")}
    begun: set[str] = set()
    for layer in ("sandbox", "agent", "rewards", "trainer/telemetry"):
        for path in (root / layer).glob("*.py"):
            code = path.read_text()
            begun |= set(re.findall(r'start_(?:as_current_)?span\(\s*f?"([a-z_]+)', code))
            begun |= set(re.findall(r'_timed\("([a-z_]+)', code))
    assert {"rollout", "lease", "step", "execute_tool"} <= begun
    assert begun <= listed
