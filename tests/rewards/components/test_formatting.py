"""The formatting component, on reports made by hand and on a real one."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from changes import change, scene
from lint_runs import lint_scene

from patchgym.rewards.component import UnknownValue
from patchgym.rewards.components.formatting import Formatting
from patchgym.rewards.scene import Scene
from patchgym.sandbox.linting import LintReport, Skipped, Unformatted

TEN = "".join(f"line_{number} = {number}\n" for number in range(10))


def report(*found: Unformatted, skipped: tuple[Skipped, ...] = (), **more: object) -> LintReport:
    """One of black's."""
    made = LintReport(
        formatting=found,
        skipped=skipped,
        versions={"black": "26.10.1"},
        seconds={"black": 0.1},
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def unformatted(path: str, *ranges: tuple[int, int], was: bool | None = True) -> Unformatted:
    """A file that black would rewrite."""
    return Unformatted(tool="black", path=path, ranges=ranges, was_formatted=was)


def linted(lint: LintReport | None, **files: str) -> Scene:
    """New modules of these names, and what the formatter said."""
    made = change({}, {f"{name}.py": text for name, text in files.items()})
    return dataclasses.replace(scene(made), lint=lint)


def test_the_value_is_the_share_of_added_lines_that_would_be_rewritten() -> None:
    measured = Formatting().measure(linted(report(unformatted("a.py", (1, 2), (5, 8))), a=TEN))
    assert measured.value == pytest.approx(0.6)
    assert measured.evidence["lines"] == 6 and measured.evidence["added"] == 10
    assert [(each.path, each.line, each.message) for each in measured.faults] == [
        ("a.py", 1, "black would rewrite lines 1 to 2"),
        ("a.py", 5, "black would rewrite lines 5 to 8"),
    ]
    assert measured.tools == "black 26.10.1" and measured.detail == ""


def test_a_badly_formatted_file_is_felt_in_a_large_patch() -> None:
    measured = Formatting().measure(linted(report(unformatted("a.py", (1, 1))), a=TEN * 1000))
    assert 0.05 < measured.value < 0.15
    assert Formatting().measure(linted(report(), a=TEN)).value == 0.0


def test_a_file_that_was_not_formatted_before_does_not_count() -> None:
    found = report(unformatted("a.py", (1, 9), was=False), unformatted("b.py", (1, 1)))
    measured = Formatting().measure(linted(found, a=TEN, b=TEN))
    assert measured.value == pytest.approx(0.1)
    assert measured.evidence["not_formatted_before"] == ["a.py"]
    assert [each.path for each in measured.faults] == ["b.py"]


def test_a_new_file_counts_unless_the_files_that_were_there_were_not_formatted() -> None:
    found = report(unformatted("a.py", (1, 5), was=None))
    assert Formatting().measure(linted(found, a=TEN)).value == pytest.approx(0.5)
    old = {"b.py": "x=1\n", "c.py": "y = 1\n", "d.py": "z = 1\n"}
    new = {"a.py": TEN, "b.py": "x=2\n", "c.py": "y = 2\n", "d.py": "z = 2\n"}
    made = scene(change(old, new))
    for unused, value in ((("b.py",), 5 / 13), (("b.py", "c.py"), 0.0)):
        lint = dataclasses.replace(found, unformatted_before=unused)
        measured = Formatting().measure(dataclasses.replace(made, lint=lint))
        assert measured.value == pytest.approx(max(value, (1 - math.exp(-0.5)) * bool(value)))
        assert measured.evidence["not_formatted_before"] == ([] if value else ["a.py"])


def test_without_a_formatter_the_value_is_unknown() -> None:
    with pytest.raises(UnknownValue, match="no linter was run"):
        Formatting().measure(linted(None, a=TEN))
    crashed = LintReport(skipped=(Skipped(tool="black", path=None, reason="it failed (exit 1)"),))
    with pytest.raises(UnknownValue, match=r"black: it failed \(exit 1\)"):
        Formatting().measure(linted(crashed, a=TEN))
    with pytest.raises(UnknownValue, match="did not run"):
        Formatting().measure(linted(LintReport(), a=TEN))
    all_of_them = report(skipped=(Skipped(tool="black", path="a.py", reason="can't"),))
    with pytest.raises(UnknownValue, match=r"a\.py: can't"):
        Formatting().measure(linted(all_of_them, a=TEN))
    binary = report(skipped=(Skipped(tool=None, path="a.py", reason="it is not UTF-8"),))
    with pytest.raises(UnknownValue, match="not UTF-8"):
        Formatting().measure(linted(binary, a=TEN))


def test_what_could_not_be_looked_at_is_named_beside_the_value_of_the_rest() -> None:
    skipped = (
        Skipped(tool="black", path="b.py", reason="can't format it"),
        Skipped(tool="semgrep", path=None, reason="it failed"),
        Skipped(tool=None, path="photo.txt", reason="a binary file"),
    )
    found = report(unformatted("a.py", (1, 5)), skipped=skipped)
    measured = Formatting().measure(linted(found, a=TEN, b="(((\n"))
    assert measured.value > 0.4
    assert measured.detail == "not looked at: black: b.py: can't format it"


def test_a_patch_without_python_has_nothing_to_format() -> None:
    made = dataclasses.replace(scene(change({}, {"README.md": "x\n"})), lint=LintReport())
    assert Formatting().measure(made).value == 0.0


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="scale is 0"):
        Formatting(scale=0)


@pytest.mark.docker
async def test_the_repositorys_own_formatter_has_the_say(tmp_path: Path) -> None:
    before = {"pyproject.toml": "[tool.black]\nline-length = 40\n", "a.py": "x = 1\n"}
    after = {
        "a.py": "x = 1\n\n\ndef f(first, second, third_one):\n    return first+second\n",
        "b.py": "y = 'single'\n",
    }
    made = await lint_scene(tmp_path, before, after, Formatting())
    measured = Formatting().measure(made)
    assert measured.value == pytest.approx(2 / 5)
    assert measured.evidence["files"] == {"a.py": 1, "b.py": 1}
    assert measured.tools.startswith("black ") and not measured.evidence["stands_in"]
