"""What is new and what is not: moves, renames, the project's own framework; and hostile input."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.rewards.tampering import FileChange, TamperFinding, inspect_changes

EXIT = b"import os\n\n\ndef leave():\n    os._exit(0)\n"
TEST = b"from m import double\n\n\ndef test_f():\n    assert double(1) == 2\n"


def change(
    path: str,
    before: bytes | None,
    after: bytes | None,
    *,
    old_path: str | None = None,
    mode: str = "100644",
) -> FileChange:
    return FileChange(path=path, before=before, after=after, old_path=old_path, mode=mode)


def inspect(*changes: FileChange) -> tuple[TamperFinding, ...]:
    return inspect_changes(changes, test_files=["tests/test_m.py"], tests=["t.py::test_f"])


def flagged(*changes: FileChange) -> set[str]:
    return {each.rule for each in inspect(*changes) if each.disqualifies}


def test_no_change_has_no_finding() -> None:
    assert inspect() == ()
    assert inspect(change("m.py", b"x = 1\n", b"x = 2\n")) == ()


def test_what_was_there_is_not_new() -> None:
    assert flagged(change("m.py", EXIT, EXIT + b"\nx = 1\n")) == set()
    assert flagged(change("m.py", EXIT, b"# moved down\n\n" + EXIT)) == set()


def test_what_moved_to_another_file_is_not_new() -> None:
    assert flagged(change("m.py", EXIT, b""), change("n.py", None, EXIT)) == set()


def test_one_move_excuses_one() -> None:
    twice = (change("n.py", None, EXIT), change("o.py", None, EXIT))
    assert flagged(change("m.py", EXIT, b""), *twice) == {"process-exit"}


def test_a_second_one_beside_the_first_is_new() -> None:
    again = EXIT.replace(b"os._exit(0)", b"os._exit(0)\n    os._exit(1)")
    assert flagged(change("m.py", EXIT, again)) == {"process-exit"}


def test_a_name_that_means_something_else_now() -> None:
    before = b"import shop as o\n\n\ndef leave():\n    o._exit(0)\n"
    after = before.replace(b"import shop", b"import os")
    assert flagged(change("m.py", before, after)) == {"process-exit"}


def test_lines_that_python_counts_otherwise_hide_nothing() -> None:
    before = b"x = 1\r\ry = 2\r\n"
    assert flagged(change("m.py", before, before + b"\rimport os\ros._exit(0)\r")) == {
        "process-exit"
    }


def test_the_line_is_the_new_files() -> None:
    (found,) = inspect(change("m.py", b"x = 1\n", b"x = 1\n\n" + EXIT))
    assert (found.rule, found.path, found.line) == ("process-exit", "m.py", 7)


def test_a_renamed_test_file_keeps_its_tests() -> None:
    moved = change("tests/test_n.py", TEST, TEST, old_path="tests/test_m.py")
    assert flagged(moved) == set()


def test_tests_that_move_with_a_deletion_are_not_deleted() -> None:
    gone = change("tests/test_m.py", TEST, None)
    assert flagged(gone) == {"tests-deleted"}
    assert flagged(gone, change("tests/test_n.py", None, TEST)) == set()


def test_a_test_that_goes_with_its_function_is_only_named() -> None:
    code = b"def double(x):\n    return x + x\n"
    found = inspect(change("tests/test_m.py", TEST, b""), change("m.py", code, b"y = 1\n"))
    assert {each.rule for each in found} == {"tests-gone-with-code", "test-file-edited"}


def test_a_test_that_was_expected_to_fail_may_go() -> None:
    parked = TEST.replace(b"def test_f", b"@pytest.mark.xfail\ndef test_f")
    assert flagged(change("tests/test_m.py", b"import pytest\n" + parked, b"")) == set()


def test_a_test_file_that_no_longer_parses_is_broken_not_deleted() -> None:
    found = inspect(change("tests/test_m.py", TEST, TEST.replace(b"== 2", b"== ")))
    assert {each.rule for each in found} == {"not-python", "test-file-edited"}


def test_data_of_tests_may_move_and_be_linked() -> None:
    data = (change("tests/new/x.json", b"{}", b"{}", old_path="tests/old/x.json"),)
    (named,) = inspect_changes(data, test_files=["tests/old/x.json"])
    assert not named.disqualifies
    assert flagged(change("tests/ca", None, b"expired/ca", mode="120000")) == set()
    assert flagged(change("tests/ca", None, b"../../ca", mode="120000")) == {"bad-symlink"}


def test_a_test_command_may_move() -> None:
    ini = b"[testenv]\ncommands = pytest tests\n"
    toml = b'[tool.tox.env_run_base]\ncommands = [["pytest", "tests"]]\n'
    assert flagged(change("tox.ini", ini, None), change("pyproject.toml", b"", toml)) == set()
    assert flagged(change("tox.ini", ini, None)) == {"test-command"}


def test_a_framework_may_touch_itself() -> None:
    before = b"import unittest\n\n\ndef run():\n    pass\n"
    after = before + b"\n\nunittest.TestCase.run = run\n"
    for path in ("src/_pytest/unittest.py", "sympy/testing/runtests.py", "django/test/runner.py"):
        found = inspect(change(path, before, after))
        assert [each.rule for each in found] == ["framework-edited"]
        assert flagged(change(path, None, after)) >= {"framework-patch"}  # it must exist before


def test_a_package_may_have_modules_named_as_standard_ones() -> None:
    assert flagged(change("shop/json.py", None, b"x = 1\n")) == set()
    assert flagged(change("json.py", b"x = 0\n", b"x = 1\n")) == set()
    assert flagged(change("json.py", None, b"x = 1\n")) == {"shadowed-module"}


def test_configuration_may_move() -> None:
    ini = b"[pytest]\naddopts = -k fast\ntestpaths = tests\n"
    toml = b'[tool.pytest.ini_options]\naddopts = "-k fast"\ntestpaths = ["tests"]\n'
    moved = (change("pytest.ini", ini, None), change("pyproject.toml", b"", toml))
    assert flagged(*moved) == set()
    assert flagged(change("pytest.ini", ini, None)) == {"test-configuration"}


def test_a_change_of_mode_alone() -> None:
    script = b"#!/bin/sh\npytest\n"
    assert flagged(change("runtests.sh", script, script, mode="100644")) == {"test-command"}
    assert flagged(change("m.py", EXIT, EXIT, mode="100755")) == set()


def test_python_that_does_not_parse_is_searched_as_text() -> None:
    found = inspect(change("m.py", b"print 1\n", b"print 1\nimport os; os._exit(0)\n"))
    assert [each.rule for each in found] == ["process-exit"]
    assert [e.rule for e in inspect(change("m.py", b"x = 1\n", b"print 1\n"))] == ["not-python"]


def test_other_languages() -> None:
    go = b"func TestF(t *testing.T) {\n}\n"
    skipped = go.replace(b"{\n}", b"{\n\tt.Skip()\n}")
    assert flagged(change("m_test.go", go, skipped)) == {"skip-added"}
    pom = b"<project>\n</project>\n"
    lax = pom.replace(b"\n", b"\n<testFailureIgnore>true</testFailureIgnore>\n", 1)
    assert flagged(change("pom.xml", pom, lax)) == {"test-configuration"}


HOSTILE = {
    "parentheses": b"x = " + b"(" * 50_000 + b")" * 50_000,
    "minus signs": b"x = " + b"-" * 50_000 + b"1",
    "attributes": b"x = a" + b".b" * 50_000,
    "sums": b"x = " + b"1+" * 50_000 + b"1",
    "calls": b"x = f" + b"()" * 50_000,
    "texts": b"x = " + b"'a'+" * 5_000 + b"'b'",
    "indents": b"".join(b" " * n + b"if x:\n" for n in range(99)) + b" " * 99 + b"pass\n",
    "ten megabytes": b"x = 1\n" * 1_700_000,
    "ten megabytes in a line": b"#" * 10_000_000,
    "nul": b"x = 1\0\n",
    "bytes": bytes(range(256)),
    "unknown encoding": b"# coding: no-such\nx = 1\n",
    "odd encoding": b"# coding: utf-7\nx = 1+AAo-import os\n",
    "long number": b"x = " + b"9" * 100_000,
    "words of a runner": b'print("' + b"1 passed " * 11_000 + b'")\n',
    "slow path": b'x = "/proc/' + b"a" * 90_000 + b'"\n',
    "git": b'import os\nos.system("' + b"git log " * 11_000 + b'")\n',
    "escapes": b'x = "\\q"\n',
    "exit handlers": b"import atexit\n" + b"atexit.register(f)\n" * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["m.py", "tests/test_m.py", "conftest.py"])
def test_hostile_python_ends_soon_and_raises_nothing(name: str, path: str) -> None:
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inspect(change(path, b"x = 0\n", HOSTILE[name]), change("n.py", HOSTILE[name], None))
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "package.json", "Makefile"]
)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"a = " + b"[" * 100_000,
        b'{"scripts": ' * 50_000,
        b"[pytest]\nx\n  y\n",
        b" " * 900_000,
        b"a" * 900_000,
        b"\xff\0[pytest]",
        b'{"scripts": [1], "jest": 3}',
        b"[tool.pytest]\nini_options = 3\n[project]\nentry-points = 1\n",
    ],
    ids=range(9),
)
def test_hostile_settings(path: str, content: bytes) -> None:
    inspect(change(path, b"", content), change(path, content, b""), change(path, None, content))


def test_deep_nesting_is_a_finding() -> None:
    deep = b"x = " + b"(" * 300 + b"1" + b")" * 300 + b"\n"
    assert flagged(change("m.py", b"x = 1\n", deep)) == {"unreadable-python"}
    assert flagged(change("m.py", deep, deep + b"y = 1\n")) == set()


PATHS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["m.py", "tests/test_m.py", "conftest.py", "setup.py", "pytest.ini", "pyproject.toml",
         "Makefile", "package.json", "pom.xml", ".gitattributes", "a.pth", "bin/test", "x.test.js"]
    ),
)  # fmt: skip
WORDS = st.sampled_from(
    ["import os", "os._exit(0)", "def test_f():", "    assert 1", "class A:", "    pass", "\t", "",
     "@pytest.mark.skip", "x = '", '"""', "if x:", "del test_f", "[pytest]", "addopts = -k x", "{",
     "raise SystemExit", "lambda: (yield)", "match x:", "    case _: pass", "try:", "except: pass",
     "exec('os._exit(0)')", "exec(", "type X = int", "print(f'{x!r:>{y}}')", "async def f():"]
)  # fmt: skip
CONTENTS = st.one_of(
    st.none(),
    st.binary(max_size=200),
    st.lists(WORDS, max_size=20).map(lambda lines: "\n".join(lines).encode()),
)
MODES = st.sampled_from(["100644", "100755", "120000", "160000", "000000", ""])
CHANGES = st.builds(
    FileChange, path=PATHS, old_path=st.none() | PATHS, before=CONTENTS, after=CONTENTS, mode=MODES
)


@settings(max_examples=400, deadline=None)
@given(st.lists(CHANGES, max_size=4), st.lists(PATHS, max_size=2), st.lists(st.text(), max_size=2))
def test_it_never_raises(changes: list[FileChange], files: list[str], tests: list[str]) -> None:
    found = inspect_changes(changes, test_files=files, tests=tests)
    assert found == inspect_changes(changes, test_files=files, tests=tests)
    assert all("\n" not in each.message for each in found)


DEEP = """
from patchgym.rewards.tampering import FileChange, inspect_changes
for depth in range(10, 1000, 45):
    for text in ("x = " + "-" * depth + "1", "x = a" + ".b" * depth, "def pytest_x():\\n    return "
                 + "a(" * min(depth, 190) + ")" * min(depth, 190), "x = " + "1+" * depth + "1"):
        change = FileChange(path="conftest.py", old_path=None, before=b"", after=text.encode())
        inspect_changes([change], test_files=["t.py"])
"""


def test_any_depth_is_survived() -> None:
    """In a process of its own: a parser that overflows would take this one along."""
    subprocess.run([sys.executable, "-c", DEEP], check=True, timeout=120)
