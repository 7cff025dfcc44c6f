"""Reading, matching and laying out, without a container."""

from __future__ import annotations

import json

import pytest

from patchgym.sandbox import (
    Bandit,
    CommandResult,
    Edit,
    Finding,
    LintReport,
    Output,
    Problem,
    Ruff,
    SarifLinter,
    Semgrep,
    Skipped,
    Unformatted,
    UnreadableOutput,
    read_sarif,
)
from patchgym.sandbox.linting.changes import ChangedFile, Hunk
from patchgym.sandbox.linting.matching import compare, touched_edits
from patchgym.sandbox.linting.trees import disarmed, near, trees
from patchgym.sandbox.linting.unified import read_edits

FINDING = Finding(
    tool="ruff", rule="S102", path="a.py", line=3, end_line=3, message="exec", severity="warning"
)


def hunk(old: int, old_count: int, new: int, new_count: int) -> Hunk:
    """As git writes them."""
    return Hunk(old=old, old_count=old_count, new=new, new_count=new_count)


def file(before: str | None, after: str | None, *hunks: Hunk, path: str = "a.py") -> ChangedFile:
    """A changed file."""
    states = [text.encode() if text is not None else None for text in (before, after)]
    return ChangedFile(path=path, before=states[0], after=states[1], hunks=hunks)


def problem(line: int, rule: str = "X1", path: str = "a.py", end: int | None = None) -> Problem:
    """One that says nothing."""
    return Problem(
        rule=rule, path=path, line=line, end_line=end or line, message="m", severity="warning"
    )


def printed(
    data: object, exit_code: int = 0, stderr: bytes = b"", dropped: int = 0
) -> CommandResult:
    """A command's end, with JSON or bytes on stdout."""
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    output = Output(head=text, dropped=dropped)
    return CommandResult(exit_code=exit_code, stdout=output, stderr=Output(head=stderr))


# Two lines were put in behind line 2, line 5 was rewritten as line 7, line 8 was taken out.
SHIFTED = file("", "", hunk(2, 0, 3, 2), hunk(5, 1, 7, 1), hunk(8, 1, 9, 0))


def test_lines_are_carried_through_the_hunks() -> None:
    moved = {line: SHIFTED.after_line(line) for line in range(1, 11)}
    assert moved == {1: 1, 2: 2, 3: 5, 4: 6, 5: None, 6: 8, 7: 9, 8: None, 9: 10, 10: 11}
    touched = [line for line in range(1, 12) if SHIFTED.touched(line, line)]
    assert touched == [3, 4, 7]
    assert SHIFTED.touched(1, 3) and SHIFTED.touched(6, 99) and not SHIFTED.touched(8, 99)


def found(
    change: ChangedFile, before: list[Problem], after: list[Problem], *others: ChangedFile
) -> tuple[list[tuple[int, bool]], list[int]]:
    """Lines of the new findings and whether they were caused; lines of the fixed ones."""
    files = {each.path: each for each in (change, *others)}
    new, gone = compare(files, before, after, tool="t", unread_before=(), unread_after=())
    return [(each.line, each.caused) for each in new], [each.line for each in gone]


def test_what_moved_or_shifted_is_not_new() -> None:
    shifted = file("x\nbad\n", "new\nx\nbad\n", hunk(0, 0, 1, 1))
    assert found(shifted, [problem(2)], [problem(3)]) == ([], [])
    moved = file("bad\na\nb\n", "a\nb\n  bad\n", hunk(1, 1, 0, 0), hunk(3, 0, 3, 1))
    assert found(moved, [problem(1)], [problem(3)]) == ([], [])


def test_of_two_equal_lines_the_touched_one_is_new() -> None:
    doubled = file("bad\n", "bad\nbad\n", hunk(0, 0, 1, 1))
    assert found(doubled, [problem(1)], [problem(1), problem(2)]) == ([(1, False)], [])
    assert found(doubled, [problem(1), problem(1, "X2")], [problem(2)]) == ([], [1])


def test_what_left_one_file_is_not_new_in_another() -> None:
    gone = file("bad\n", None, path="b.py")
    come = file(None, "bad\n", hunk(0, 0, 1, 1))
    assert found(come, [problem(1, path="b.py")], [problem(1)], gone) == ([], [])
    other = file("bad\n", "bad\nx\n", hunk(1, 0, 2, 1), path="b.py")
    told = found(come, [problem(1, path="b.py")], [problem(1), problem(1, path="b.py")], other)
    assert told == ([(1, False)], [])  # it is still where it was, so there are two now


def test_caused_findings_and_ranges_that_reach_a_touched_line() -> None:
    change = file("import os\nos.x\ny\n", "import os\n\ny\n", hunk(2, 1, 2, 1))
    assert found(change, [], [problem(1)]) == ([(1, True)], [])
    assert found(change, [], [problem(1, end=3)]) == ([(1, False)], [])


def test_a_state_that_could_not_be_read_says_little() -> None:
    change = file("((\nbad\n", "x\nbad\n", hunk(1, 1, 1, 1))
    files = {"a.py": change}
    problems = [problem(1), problem(2)]
    new, _ = compare(files, [], problems, tool="t", unread_before=["a.py"], unread_after=())
    assert [each.line for each in new] == [1]
    _, gone = compare(files, problems, [], tool="t", unread_before=(), unread_after=["a.py"])
    assert gone == []


def test_edits_of_a_diff() -> None:
    diff = b"--- after/a b.py\n+++ after/a b.py\n@@ -1,4 +1,5 @@\n import os\n+\n+\n-x=1\n+x = 1\n"
    diff += b" y = 2\n--- z\n\n--- b.py\n+++ b.py\n@@ -3 +3,2 @@\n-++ x\n+++ y\n+\n"
    edits = read_edits(diff)
    assert edits["after/a b.py"][0] == Edit(first=2, last=2)
    assert edits["b.py"] == (Edit(first=3, last=3),)
    inserted = read_edits(b"--- a\n+++ a\n@@ -1,2 +1,3 @@\n x\n+\n y\n@@ -0,0 +1 @@\n+x\n")
    assert inserted["a"] == (Edit(first=2, last=1), Edit(first=1, last=0))


def test_only_touched_lines_count_as_unformatted() -> None:
    change = file("", "", hunk(4, 1, 4, 2))
    whole = [Edit(first=1, last=9)]
    assert touched_edits(change, whole, whole) == ((4, 5),)
    blank_above = Edit(first=4, last=3)
    assert touched_edits(change, [], [blank_above]) == ((4, 4),)
    assert touched_edits(change, [blank_above], [blank_above]) == ()  # it lacked that before
    assert touched_edits(change, [], [Edit(first=8, last=7)]) == ()
    cut = file("", "", hunk(4, 2, 3, 0))
    assert touched_edits(cut, [], [Edit(first=4, last=3)]) == ((3, 3),)


def test_directives_on_lines_that_the_diff_brought_are_void() -> None:
    before = "a = 1  # fmt: skip\nb = 2\n"
    after = "b = 2\na = 1  # fmt: skip\nc = 3  # fmt: skip\nfmt: str = 'x'\n"
    change = file(before, after, hunk(1, 1, 0, 0), hunk(2, 0, 2, 3))
    lines = disarmed(change).decode().splitlines()
    assert lines == ["b = 2", "a = 1  # fmt: skip", "c = 3  # _________", "fmt: str = 'x'"]


def test_trees_hold_both_states_the_base_configuration_and_the_outline() -> None:
    files = [
        file("old", "new", path="src/a.py"),
        file("gone", None, path="b"),
        file("renamed", "renamed", path="b/c.py"),
    ]
    known = ["src/a.py", "src/other.py", "lib/deep/x.py", "b", "src/ruff.toml", "lib/ruff.toml"]
    assert near(known, ["src/a.py"], ["ruff.toml"]) == ["src/ruff.toml"]
    laid = trees(files, {"src/ruff.toml": b"base"}, known)
    assert laid["before"].files["src/a.py"] == b"old" and laid["after"].files["src/a.py"] == b"new"
    for tree in laid.values():
        assert tree.files["src/ruff.toml"] == b"base" and tree.files["src/other.py"] == b""
        assert "lib/deep" in tree.folders and not tree.folders & tree.files.keys()
    assert "b/c.py" in laid["before"].files and "b" not in laid["before"].files


CLIPPY = {
    "runs": [
        {
            "results": [
                {
                    "level": "warning",
                    "message": {"text": "this loop never actually loops"},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "src/main%20x.rs"},
                                "region": {
                                    "byteLength": 3,
                                    "byteOffset": 20,
                                    "endColumn": 2,
                                    "endLine": 6,
                                    "startColumn": 5,
                                    "startLine": 4,
                                },
                            }
                        }
                    ],
                    "ruleId": "clippy::never_loop",
                    "ruleIndex": 0,
                }
            ],
            "tool": {
                "driver": {
                    "name": "clippy",
                    "rules": [{"id": "clippy::never_loop", "fullDescription": {"text": "loops"}}],
                }
            },
        }
    ],
    "version": "2.1.0",
}
GOLANGCI = {
    "version": "2.1.0",
    "runs": [
        {
            "tool": {"driver": {"name": "golangci-lint"}},
            "results": [
                {
                    "ruleId": "errcheck",
                    "level": "error",
                    "message": {"text": "Error return value is not checked"},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "pkg/a.go", "index": 0},
                                "region": {"startLine": 9, "startColumn": 2},
                            }
                        }
                    ],
                }
            ],
        }
    ],
}
ESLINT = {
    "version": "2.1.0",
    "runs": [
        {
            "tool": {
                "driver": {
                    "name": "ESLint",
                    "version": "9.39.5",
                    "rules": [{"id": "no-eval", "defaultConfiguration": {"level": "error"}}],
                }
            },
            "artifacts": [{"location": {"uri": "file:///w/a%20b/%C3%A9.js"}}],
            "results": [
                {
                    "message": {"text": "eval can be harmful."},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"index": 0},
                                "region": {"startLine": 2, "endLine": 2},
                            }
                        }
                    ],
                    "ruleIndex": 0,
                    "suppressions": [{"kind": "inSource", "justification": ""}],
                }
            ],
            "invocations": [
                {
                    "executionSuccessful": False,
                    "toolConfigurationNotifications": [
                        {
                            "level": "error",
                            "message": {"text": "Parsing error: Unexpected token ("},
                            "descriptor": {"id": "ESL0999"},
                            "locations": [
                                {
                                    "physicalLocation": {
                                        "artifactLocation": {"uri": "file:///w/syn.js"},
                                        "region": {"startLine": 1, "startColumn": 10},
                                    }
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ],
}


def test_sarif_as_clippy_golangci_and_eslint_write_it() -> None:
    (clippy,) = read_sarif(json.dumps(CLIPPY).encode()).problems
    assert (clippy.rule, clippy.path) == ("clippy::never_loop", "src/main x.rs")
    assert (clippy.line, clippy.end_line, clippy.severity) == (4, 6, "warning")
    (golangci,) = read_sarif(json.dumps(GOLANGCI).encode()).problems
    assert (golangci.rule, golangci.path, golangci.line) == ("errcheck", "pkg/a.go", 9)
    reading = read_sarif(json.dumps(ESLINT).encode())
    syntax, suppressed = reading.problems
    assert (suppressed.rule, suppressed.path) == ("no-eval", "/w/a b/é.js")
    assert suppressed.severity == "error"
    assert (syntax.rule, syntax.path) == ("invalid-syntax", "/w/syn.js")
    assert reading.unread == {"/w/syn.js": "Parsing error: Unexpected token ("}
    assert reading.version == "9.39.5"


def test_sarif_resolves_bases_rules_levels_and_messages() -> None:
    place = {"artifactLocation": {"uri": "a.c", "uriBaseId": "R"}, "region": {"startLine": 2}}
    rule = {
        "id": "C1",
        "defaultConfiguration": {"level": "note"},
        "messageStrings": {"m": {"text": "no {0} here"}},
        "properties": {"tags": ["HIGH CONFIDENCE"]},
    }
    result = {
        "rule": {"index": 0},
        "message": {"id": "m", "arguments": ["goto"]},
        "locations": [{"physicalLocation": place}],
    }
    ignored = [{**result, "kind": "pass"}, {**result, "baselineState": "absent"}, {"ruleId": "C1"}]
    run = {
        "originalUriBaseIds": {"R": {"uri": "file:///w/"}},
        "tool": {"driver": {"rules": [rule]}},
        "results": [result, *ignored],
    }
    (told,) = read_sarif(json.dumps({"runs": [run]}).encode()).problems
    assert (told.rule, told.path, told.message) == ("C1", "/w/a.c", "no goto here")
    assert (told.severity, told.confidence) == ("note", "high")
    failed = {"runs": [{"invocations": [{"executionSuccessful": False}]}]}
    assert None in read_sarif(json.dumps(failed).encode()).unread


HOSTILE = (
    b"", b"{", b"[]", b'{"runs": 1}', b'{"runs": null}', b"[" * 200_000, b"\xff\xfe", b"NaN",
    b'{"runs"' + b" " * 99,
)  # fmt: skip
ODD = {
    "runs": [
        1,
        None,
        {"results": {"a": 1}, "tool": [], "invocations": "x"},
        {
            "results": [
                7,
                {"locations": 3, "ruleIndex": -1},
                {
                    "ruleId": 5,
                    "ruleIndex": 10**30,
                    "message": "text",
                    "level": ["x"],
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": "\ud800", "uriBaseId": []},
                                "region": {"startLine": "1", "endLine": -5},
                            }
                        }
                    ],
                },
            ]
        },
    ]
}


def test_malformed_output_is_said_to_be_unreadable() -> None:
    sarif = SarifLinter(name="s", arguments=("x",), suffixes=(".x",))
    for linter in (sarif, Ruff(), Bandit(), Semgrep()):
        for data in HOSTILE:
            if data == b"[]" and isinstance(linter, Ruff):
                continue
            with pytest.raises(UnreadableOutput):
                linter.read(printed(data))
        with pytest.raises(UnreadableOutput, match="too long"):
            linter.read(printed(b'{"runs": []}', dropped=1))
    (odd,) = read_sarif(json.dumps(ODD).encode()).problems
    assert (odd.line, odd.end_line, odd.path, odd.severity) == (1, 1, "?", "warning")
    with pytest.raises(UnreadableOutput, match="more than"):
        read_sarif(json.dumps({"runs": [{"results": many()}]}).encode())


def many() -> list[object]:
    """Results past the limit."""
    place = {"physicalLocation": {"artifactLocation": {"uri": "a"}}}
    return [{"ruleId": "x", "locations": [place]}] * 20_001


def test_the_text_for_an_agent_says_what_was_cut() -> None:
    report = LintReport(
        new=(FINDING, FINDING),
        fixed=(),
        formatting=(
            Unformatted(tool="f", path="b.py", ranges=((1, 1), (3, 5)), was_formatted=True),
        ),
        skipped=(Skipped(tool="bandit", path=None, reason="it is not in the image"),),
        files=("a.py",),
    )
    lines = report.text().splitlines()
    assert lines[0] == "a.py:3: warning: ruff S102: exec"
    assert lines[2:] == [
        "b.py: f would rewrite line 1, 3-5",
        "not checked: bandit, it is not in the image",
    ]
    assert not report.complete
    assert report.text(70).splitlines()[1:] == [lines[1], "[2 more of 4 not shown]"]
    empty = LintReport()
    assert empty.text() == "no new findings" and empty.complete
