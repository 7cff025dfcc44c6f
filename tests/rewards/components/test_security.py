"""The security component, on reports made by hand and on a real one."""

from __future__ import annotations

import dataclasses
import math
import random
import string
from pathlib import Path

import pytest
from changes import NO_CHANGE, change, scene
from lint_runs import lint_scene

from patchgym.rewards.component import Measurement, UnknownValue
from patchgym.rewards.components.security import Security
from patchgym.rewards.scene import Change, Scene
from patchgym.sandbox.linting import Finding, LintReport, Skipped
from patchgym.sandbox.linting.report import Confidence, Severity

TOOLS = ("ruff", "bandit", "semgrep", "detect-secrets")
FILES = {"a.py": "x = 1\n", "tests/test_a.py": "x = 1\n", "README.md": "x\n"}


def finding(
    tool: str,
    rule: str,
    severity: Severity = "error",
    confidence: Confidence | None = "high",
    path: str = "a.py",
    line: int = 1,
    end_line: int | None = None,
) -> Finding:
    """One that says nothing."""
    return Finding(
        tool=tool,
        rule=rule,
        path=path,
        line=line,
        end_line=end_line or line,
        message="m",
        severity=severity,
        confidence=confidence,
    )


def linted(
    *new: Finding,
    skipped: tuple[Skipped, ...] = (),
    ran: tuple[str, ...] = TOOLS,
    made: Change | None = None,
    gold: Change = NO_CHANGE,
) -> Scene:
    """A scene with these findings."""
    report = LintReport(new=new, skipped=skipped, seconds=dict.fromkeys(ran, 0.1))
    return dataclasses.replace(scene(made or change({}, FILES), gold), lint=report)


def measured(*new: Finding) -> Measurement:
    """By the default options."""
    return Security().measure(linted(*new))


def test_findings_are_weighted_by_severity_and_confidence() -> None:
    assert measured().value == 0.0
    assert measured(finding("bandit", "B602")).value == pytest.approx(1 - math.exp(-1))
    unsure = measured(finding("bandit", "B602", "warning", "low"))
    assert unsure.value == pytest.approx(1 - math.exp(-0.5 * 0.3))
    note = measured(finding("bandit", "B603", "note"))
    assert 0 < note.value < 0.05


def test_what_is_no_matter_of_security_is_left_out() -> None:
    assert measured(finding("ruff", "F821"), finding("eslint", "no-eval")).value == 0.0


def test_several_tools_at_one_place_count_once_as_the_worst_of_them() -> None:
    both = measured(
        finding("ruff", "S602", "warning", None),
        finding("bandit", "B602", "error", "high"),
        finding("semgrep", "python-shell", "warning", "medium"),
    )
    assert both.value == pytest.approx(1 - math.exp(-1))
    assert [each.message for each in both.faults] == ["error: bandit B602: m"]
    spread = measured(
        finding("bandit", "B602", line=3, end_line=6), finding("ruff", "S602", line=5)
    )
    assert len(spread.faults) == 1
    apart = measured(finding("bandit", "B602", line=3), finding("bandit", "B602", line=5))
    assert len(apart.faults) == 2 and apart.value > both.value
    vast = measured(finding("semgrep", "r", line=1, end_line=500), finding("bandit", "B1", line=90))
    assert len(vast.faults) == 2


def test_rules_that_bandit_calls_low_are_so_in_ruff_too() -> None:
    assert measured(finding("ruff", "S603", "warning", None)).value < 0.05
    assert measured(finding("ruff", "S324", "warning", None)).value > 0.05


def test_in_tests_findings_weigh_little_and_each_rule_once() -> None:
    test = "tests/test_a.py"
    many = [finding("bandit", "B301", "warning", path=test, line=line) for line in range(30)]
    assert 0 < measured(*many).value < 0.05
    secrets = [
        finding("detect-secrets", "secret-keyword", path=test, line=line) for line in range(30)
    ]
    assert (
        0 < measured(*secrets).value < measured(*many, finding("bandit", "B602", path=test)).value
    )
    assert measured(finding("detect-secrets", "github-token")).value > 0.5


def test_examples_of_secrets_in_prose_weigh_little_but_tokens_do_not() -> None:
    guess = finding("detect-secrets", "hex-high-entropy-string", "error", "low", "README.md")
    assert measured(guess).value < 0.05
    assert measured(finding("detect-secrets", "github-token", path="README.md")).value > 0.5


def test_new_dependencies_are_risks_unless_the_tasks_own_solution_adds_them() -> None:
    before = {"pyproject.toml": "[project]\ndependencies = []\n"}
    after = {"pyproject.toml": "[project]\ndependencies = ['left-pad']\n"}
    made = change(before, after)
    found = Security().measure(linted(made=made))
    assert found.value == pytest.approx(1 - math.exp(-0.3))
    assert [(each.path, each.line, each.message) for each in found.faults] == [
        ("pyproject.toml", 2, "new dependency (python): left-pad")
    ]
    assert found.evidence["dependencies"] == ["left-pad"]
    assert Security().measure(linted(made=made, gold=made)).value == 0.0


def test_a_manifest_that_can_not_be_read_is_named() -> None:
    found = Security().measure(linted(made=change({}, {"pyproject.toml": "[x\n"})))
    assert found.value == 0.0 and found.detail.startswith("unreadable: pyproject.toml: no TOML")


def test_a_vulnerable_dependency_weighs_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = '{"dependencies": [{"name": "left-pad", "vulns": [{"id": "CVE-1"}]}]}'
    (tmp_path / "pip_audit.py").write_text(f"print({told!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = change({}, {"requirements.txt": "left-pad==1.0\n"})
    found = Security(audit=True).measure(linted(made=made))
    assert found.value == pytest.approx(1 - math.exp(-1.3))
    assert found.faults[0].message.endswith("left-pad, which has known vulnerabilities: CVE-1")
    (tmp_path / "pip_audit.py").write_text("raise SystemExit('no index answers')\n")
    found = Security(audit=True).measure(linted(made=made))
    assert found.value == pytest.approx(1 - math.exp(-0.3))
    assert found.detail == "pip-audit gave no answer: no index answers"


def test_a_tool_that_failed_is_named_and_the_others_count() -> None:
    failed = Skipped(tool="semgrep", path=None, reason="its output is no JSON")
    found = Security().measure(
        linted(finding("bandit", "B602"), skipped=(failed,), ran=("ruff", "bandit"))
    )
    assert found.value > 0.5
    assert found.detail == "not looked at: semgrep: its output is no JSON"


def test_without_any_tool_the_value_is_unknown() -> None:
    with pytest.raises(UnknownValue, match="no linter was run"):
        Security().measure(dataclasses.replace(linted(), lint=None))
    failed = tuple(Skipped(tool=tool, path=None, reason="it crashed") for tool in TOOLS)
    with pytest.raises(UnknownValue, match="ruff: it crashed; bandit: it crashed"):
        Security().measure(linted(skipped=failed, ran=()))


@pytest.mark.parametrize(
    ("options", "told"),
    [({"tests": -0.1}, "tests is -0.1"), ({"audit_seconds": 0.0}, "audit_seconds is 0")],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Security(**options)  # type: ignore[arg-type]


@pytest.mark.docker
async def test_real_tools_find_what_a_patch_brings_and_not_what_was_there(tmp_path: Path) -> None:
    drawn = random.Random(7).choices(string.ascii_letters + string.digits, k=36)
    token = "ghp_" + "".join(drawn)
    before = {"shop/run.py": "import subprocess\n\n\ndef old(x):\n    return eval(x)\n"}
    after = {
        "shop/run.py": before["shop/run.py"]
        + "\n\ndef new(x):\n    return subprocess.run(\n        x, shell=True\n    )  # nosec\n",
        "shop/key.py": f'KEY = "{token}"  # pragma: allowlist secret\n',
        "tests/test_run.py": f'def test_run():\n    assert login(password="{token[4:20]}")\n',
        "requirements.txt": "left-pad==1.0\n",
    }
    found = Security().measure(await lint_scene(tmp_path, before, after, Security()))
    assert [(each.path, each.line) for each in found.faults][:3] == [
        ("shop/key.py", 1), ("shop/run.py", 10), ("requirements.txt", 1),
    ]  # fmt: skip
    assert all(each.path == "tests/test_run.py" for each in found.faults[3:])
    assert found.value == pytest.approx(1 - math.exp(-2.3), abs=0.02)
    assert found.detail == "" and "detect-secrets 1.5.0" in found.tools
    assert token not in repr(found)
