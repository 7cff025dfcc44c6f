"""The repository's own formatter: which it is, and what it says of a diff."""

from __future__ import annotations

import pytest

from patchgym.sandbox import CommandResult, Output, UnreadableOutput
from patchgym.sandbox.linting import (
    DiffFormatter,
    Formatter,
    LintReport,
    RuffFormat,
    autopep8,
    black,
    formatter_of,
    yapf,
)
from patchgym.sandbox.linting.unified import read_edits

from .conftest import Bench

BLACK = {"pyproject.toml": "[tool.black]\nline-length = 60\n"}
YAPF = {".style.yapf": "[style]\nbased_on_style = google\nindent_width = 2\n"}
AUTOPEP8 = {"pyproject.toml": "[tool.autopep8]\nmax_line_length = 60\n"}
HOOKS = "repos:\n  - repo: local\n    hooks:\n      - id: {}\n        args: [--quiet]\n"


def places(report: LintReport) -> list[tuple[str, str, tuple[tuple[int, int], ...]]]:
    """Formatter, path and lines."""
    return [(each.tool, each.path, each.ranges) for each in report.formatting]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, "ruff-format"),
        ({"pyproject.toml": "[tool.ruff]\n"}, "ruff-format"),
        (BLACK, "black"),
        ({"pyproject.toml": "[tool.black]\n[tool.ruff.lint]\n"}, "black"),
        ({"pyproject.toml": "[tool.black]\n[tool.ruff.format]\n"}, "ruff-format"),
        ({"pyproject.toml": "[tool.black]\n", "d/ruff.toml": "[format]\n"}, "ruff-format"),
        (YAPF, "yapf"),
        ({"setup.cfg": "[metadata]\n[yapf]\n"}, "yapf"),
        (AUTOPEP8, "autopep8"),
        ({".pre-commit-config.yaml": HOOKS.format("black")} | AUTOPEP8, "black"),
        ({".pre-commit-config.yaml": HOOKS.format("'yapf'")} | BLACK, "yapf"),
        ({".pre-commit-config.yaml": HOOKS.format("mypy")} | BLACK, "black"),
        ({".pre-commit-config.yaml": "# - id: black\n"}, "ruff-format"),
        ({"pyproject.toml": "[tool.black"}, "ruff-format"),
        ({"pyproject.toml": "a = " + "[" * 5000}, "ruff-format"),
        ({"pyproject.toml": "tool = 3\n", "ruff.toml": "\udcff"}, "ruff-format"),
    ],
)
def test_the_base_commits_configuration_chooses_the_formatter(
    files: dict[str, str], name: str
) -> None:
    data = {path: text.encode("utf-8", "surrogateescape") for path, text in files.items()}
    assert formatter_of(data).tool.name == name


def test_ruff_only_stands_in_where_nothing_names_a_formatter() -> None:
    assert formatter_of({}).tool.stands_in
    assert not formatter_of({"ruff.toml": b""}).tool.stands_in
    assert not formatter_of({"pyproject.toml": b"[tool.black]\n"}).tool.stands_in


async def test_only_the_formatter_that_is_configured_runs(bench: Bench) -> None:
    bad = {"a.py": "x = {'a': 1}\ny = 2\nz=3\n"}
    for base, name in ((BLACK, "black"), (YAPF, "yapf"), (AUTOPEP8, "autopep8")):
        report = await bench.lint({**base, "a.py": "x = 1\ny = 2\n"}, bad, Formatter())
        assert set(report.versions) == {name} and report.complete
        lines = ((1, 1), (3, 3)) if name == "black" else ((3, 3),)
        assert places(report) == [(name, "a.py", lines)]
        assert report.formatting[0].was_formatted and not report.formatting[0].stands_in
    plain = await bench.lint({"a.py": "x = 1\ny = 2\n"}, bad, Formatter())
    assert set(plain.versions) == {"ruff-format"} and plain.formatting[0].stands_in
    assert places(plain) == [("ruff-format", "a.py", ((3, 3),))]  # with any quotes


async def test_the_style_is_the_base_commits(bench: Bench) -> None:
    long = "x = some_function(first_argument, second_argument, third_one)\n"
    wide = {"pyproject.toml": "[tool.black]\nline-length = 200\n"}
    for base, theirs in ((BLACK, wide), (AUTOPEP8, {"setup.cfg": "[pep8]\nmax-line-length=200\n"})):
        report = await bench.lint(
            {**base, "a.py": "x = 1\n"}, {**theirs, "a.py": long}, Formatter()
        )
        assert [each.path for each in report.formatting] == ["a.py"]
        assert report.complete and report.notes == ()
    indented = "def f():\n  return 1\n"
    report = await bench.lint({**YAPF, "a.py": "x = 1\n"}, {"a.py": indented}, Formatter())
    assert report.formatting == ()
    four = indented.replace("  ", "    ")
    report = await bench.lint({**YAPF, "a.py": "x = 1\n"}, {"a.py": four}, Formatter())
    assert places(report) == [("yapf", "a.py", ((2, 2),))]


@pytest.mark.parametrize("formatter", [black(), yapf()])
async def test_a_file_that_can_not_be_parsed_hides_no_other(
    bench: Bench, formatter: DiffFormatter
) -> None:
    after = {"a.py": "def (:\n", "b c.py": "x=1\n", "d/e.py": "y = 2\n", "-z.py": "z=1\n"}
    report = await bench.lint({"a.py": "x = 1\n"}, after, formatter)
    assert {each.path for each in report.formatting} == {"b c.py", "-z.py"}
    assert [(each.path, each.reason) for each in report.skipped] == [
        ("a.py", f"{formatter.name} can't format it")
    ]


async def test_a_configuration_that_a_formatter_refuses_is_done_without(bench: Bench) -> None:
    pinned = {"pyproject.toml": "[tool.black]\nrequired-version = '22'\n", "a.py": "x = 1\n"}
    report = await bench.lint(pinned, {"a.py": "x=1\n"}, Formatter())
    assert places(report) == [("black", "a.py", ((1, 1),))] and report.notes == ()
    odd = {"pyproject.toml": "[tool.black]\ntarget-version = ['py1']\n", "a.py": "x = 1\n"}
    report = await bench.lint(odd, {"a.py": "x=1\n"}, Formatter())
    assert places(report) == [("black", "a.py", ((1, 1),))]
    assert report.notes[0].startswith("black had to run in another way")
    in_place = {"pyproject.toml": "[tool.autopep8]\nin-place = true\n", "a.py": "x = 1\n"}
    report = await bench.lint(in_place, {"a.py": "x=1\n"}, Formatter())
    assert places(report) == [("autopep8", "a.py", ((1, 1),))] and len(report.notes) == 1


async def test_directives_that_the_diff_adds_hide_nothing(bench: Bench) -> None:
    after = {"a.py": "# fmt: off\nx=1\n# yapf: disable\ny=2  # fmt: skip\n"}
    for formatter in (black(), yapf()):
        report = await bench.lint({"a.py": "z = 1\n"}, after, formatter)
        assert [each.ranges for each in report.formatting] == [((2, 2), (4, 4))]


async def test_files_that_were_not_formatted_are_named_though_nothing_touched_it(
    bench: Bench,
) -> None:
    before = {"a.py": "x=1\n\n\ny = 2\n", "b.py": "z = 1\n"}
    report = await bench.lint(before, {"a.py": "x=1\n\n\ny = 3\n", "b.py": "z = 2\n"}, Formatter())
    assert report.formatting == () and report.unformatted_before == ("a.py",)


async def test_a_formatter_of_ones_own_by_its_diff(bench: Bench) -> None:
    script = 'for f; do sed "s/a/b/" "$f" | diff -u "$f" - | sed "s#^+++ .*#+++ $f#"; done; exit 0'
    own = DiffFormatter(
        name="swap", arguments=("sh", "-c", script, "sh", "{targets}"), suffixes=(".txt",)
    )
    report = await bench.lint({"x.txt": "b\n"}, {"x.txt": "b\na\n", "y.txt": "a\n"}, own)
    assert places(report) == [("swap", "x.txt", ((2, 2),)), ("swap", "y.txt", ((1, 1),))]


def result(stdout: bytes, exit_code: int = 0, stderr: bytes = b"") -> CommandResult:
    """A command's end."""
    return CommandResult(
        exit_code=exit_code, stdout=Output(head=stdout), stderr=Output(head=stderr)
    )


def test_output_that_is_no_diff_changes_nothing() -> None:
    endless = b"--- a\n+++ a\n@@ -1,999999999 +1,999999999 @@\n" + b"+x\n" * 1000
    garbage = (b"\xff\xfe" * 1000, b"@@ -1 +1 @@\n-x\n", b"+++ a\n@@ -" + b"9" * 5000 + b" @@\n",
               b"+++ a\n@@ -1,1 +1,1 @@")  # fmt: skip
    for data in garbage:
        assert not any(read_edits(data).values())
    (edit,) = read_edits(endless)["a"]
    assert (edit.first, edit.last) == (1, 0)
    with pytest.raises(UnreadableOutput, match="boom"):
        black().read(result(b"garbage", exit_code=123, stderr=b"boom\n"))
    with pytest.raises(UnreadableOutput, match="too long"):
        yapf().read(
            CommandResult(exit_code=0, stdout=Output(head=b"", dropped=1), stderr=Output(head=b""))
        )


def test_paths_are_read_without_what_a_tool_puts_around_them() -> None:
    diff = b"--- original/./a b.py\n+++ fixed/./a b.py\n@@ -1 +1 @@\n-x=1\n+x = 1\n"
    assert set(autopep8().read(result(diff)).edits) == {"./a b.py"}
    diff = b"--- a.py\t2026-01-01\n+++ a.py\t2026-01-01\n@@ -1 +1 @@\n-x=1\n+x = 1\n"
    assert set(black().read(result(diff)).edits) == {"a.py"}


def test_a_formatter_without_a_choice_is_ruffs() -> None:
    assert Formatter().command(["a.py"], "/f") == RuffFormat().command(["a.py"], "/f")
    assert Formatter().chosen({})[0].tool.name == "ruff-format"
