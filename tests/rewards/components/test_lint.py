"""The lint component, on reports made by hand and on a real one."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from changes import change, scene
from lint_runs import lint_scene

from patchgym.rewards.component import UnknownValue
from patchgym.rewards.components.lint import Lint
from patchgym.rewards.scene import Scene
from patchgym.sandbox.linting import Finding, LintReport, Skipped
from patchgym.sandbox.linting.report import Severity


def finding(
    rule: str, severity: Severity = "warning", path: str = "a.py", line: int = 1, tool: str = "ruff"
) -> Finding:
    """One that says nothing."""
    return Finding(
        tool=tool, rule=rule, path=path, line=line, end_line=line, message="m", severity=severity
    )


def linted(*new: Finding, skipped: tuple[Skipped, ...] = (), ran: bool = True) -> Scene:
    """A scene with these findings."""
    report = LintReport(
        new=new,
        skipped=skipped,
        versions={"ruff": "0.17.6"} if ran else {},
        seconds={"ruff": 0.1} if ran else {},
    )
    made = change({}, {"a.py": "x = 1\n", "tests/test_a.py": "x = 1\n"})
    return dataclasses.replace(scene(made), lint=report)


def test_new_findings_are_weighted_by_severity() -> None:
    found = (finding("E741", "note"), finding("F401"), finding("F821", "error", line=7))
    measured = Lint().measure(linted(*found))
    assert measured.value == pytest.approx(1 - math.exp(-1.4 / 3))
    assert [each.message for each in measured.faults] == [
        "error: ruff F821: m", "warning: ruff F401: m", "note: ruff E741: m",
    ]  # fmt: skip
    assert (measured.faults[0].path, measured.faults[0].line) == ("a.py", 7)
    assert measured.evidence["severities"] == {"note": 1, "warning": 1, "error": 1}
    assert measured.tools == "ruff 0.17.6"
    assert Lint().measure(linted()).value == 0.0


def test_what_concerns_security_is_for_another_component() -> None:
    others = (finding("S602"), finding("B602", "error", tool="bandit"))
    secrets = finding("github-token", "error", tool="detect-secrets")
    assert Lint().measure(linted(*others, secrets)).value == 0.0
    assert Lint().measure(linted(finding("SIM102"))).value > 0


def test_findings_in_tests_count_less() -> None:
    here = Lint().measure(linted(finding("F821", "error")))
    there = Lint().measure(linted(finding("F821", "error", path="tests/test_a.py")))
    assert 0 < there.value < here.value / 2
    none = Lint(tests=0).measure(linted(finding("F821", "error", path="tests/fixtures/a.py")))
    assert none.value == 0.0 and len(none.faults) == 1


def test_a_matter_of_style_counts_once_a_file() -> None:
    habits = [finding("B904", line=line) for line in range(20)]
    once = Lint().measure(linted(habits[0]))
    assert Lint().measure(linted(*habits)).value == once.value < 0.05
    handed_on = [finding("F401", path="shop/__init__.py", line=line) for line in range(9)]
    assert Lint().measure(linted(*handed_on)).value == once.value
    unused = [finding("F401", line=line) for line in range(9)]
    assert Lint().measure(linted(*unused)).value > 0.5


def test_without_ruff_the_value_is_unknown() -> None:
    with pytest.raises(UnknownValue, match="no linter was run"):
        Lint().measure(dataclasses.replace(linted(), lint=None))
    hung = Skipped(tool="ruff", path=None, reason="no answer within 60.0 s")
    with pytest.raises(UnknownValue, match=r"ruff: no answer within 60\.0 s"):
        Lint().measure(linted(skipped=(hung,), ran=False))
    unlaid = Skipped(tool=None, path=None, reason="more than 5000 changed files")
    with pytest.raises(UnknownValue, match="more than 5000"):
        Lint().measure(linted(skipped=(unlaid,)))


def test_files_that_ruff_did_not_see_are_named() -> None:
    skipped = tuple(
        Skipped(tool=None, path=f"{number}.py", reason="a binary file") for number in range(7)
    )
    measured = Lint().measure(linted(skipped=skipped))
    assert measured.detail.startswith("not looked at: 0.py: a binary file; 1.py")
    assert measured.detail.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"error": -1.0}, "error is -1"),
        ({"note": math.nan}, "note is nan"),
        ({"scale": 0.0}, "scale is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Lint(**options)


@pytest.mark.docker
async def test_real_findings_are_those_that_the_diff_brings(tmp_path: Path) -> None:
    before = {"a.py": "import os\n\n\ndef old(x):\n    return undefined(x)\n"}
    after = {"a.py": before["a.py"] + "\n\ndef new(x=[]):\n    return eval(missing)\n"}
    measured = Lint().measure(await lint_scene(tmp_path, before, after, Lint()))
    assert measured.evidence["rules"] == {"B006": 1, "F821": 1}
    assert [each.line for each in measured.faults] == [9, 8]
    assert measured.value == pytest.approx(1 - math.exp(-1.3 / 3))
